"""Tables of the fields and rules of an InferenceDeployment, from the schema of the CRD."""

import re
from collections.abc import Iterator
from typing import Any

from docs.generate.blocks import table
from pagefleet_operator.crd import Schema, build_crd

_HEADER = ("field", "type", "bounds", "absent", "meaning")
_ABSENT = re.compile(r"\s*Absent(?: or auto)?: (?P<default>.+?)\.(?=\s[A-Z]|$)")


def root_schema() -> Schema:
    schema: Schema = build_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def field_sections(part: str) -> str:
    """A heading and a table for `spec` or `status` and for every object in it."""
    sections = [
        f"### {path}\n\n{node['description']}\n\n{_field_table(node)}"
        for path, node in _objects(part, root_schema()["properties"][part])
    ]
    return "\n\n".join(sections)


def rule_table() -> str:
    """Every rule that joins fields, with what the API server answers where it is broken."""
    rows = [
        (f"`{path or 'the object'}`", rule["message"], f"`{rule['rule']}`")
        for path, node in _nodes("", root_schema())
        for rule in node.get("x-kubernetes-validations", ())
    ]
    return table(("self", "message", "rule (CEL)"), rows)


def _nodes(path: str, node: Schema) -> Iterator[tuple[str, Schema]]:
    yield path, node
    for name, part in node.get("properties", {}).items():
        yield from _nodes(f"{path}.{name}".lstrip("."), part)
    if isinstance(node.get("items"), dict):
        yield from _nodes(f"{path}[]", node["items"])


def _objects(path: str, node: Schema) -> Iterator[tuple[str, Schema]]:
    return ((at, part) for at, part in _nodes(path, node) if "properties" in part)


def _field_table(node: Schema) -> str:
    required = node.get("required", ())
    rows = [
        _row(name, part, required=name in required) for name, part in node["properties"].items()
    ]
    return table(_HEADER, rows)


def _row(name: str, part: Schema, *, required: bool) -> tuple[str, ...]:
    text = part["description"]
    match = _ABSENT.search(text)
    absent = match["default"] if match else "required" if required else "-"
    meaning = _ABSENT.sub("", text, count=1).strip() if match else text
    return (f"`{name}`", _type(part), ", ".join(_bounds(part)), absent, meaning)


def _type(part: Schema) -> str:
    if part.get("x-kubernetes-int-or-string"):
        return "quantity"
    if part["type"] == "array":
        return f"list of {_type(part['items'])}"
    if isinstance(part.get("additionalProperties"), dict):
        return f"map of {_type(part['additionalProperties'])}"
    return str(part.get("format") if part.get("format") == "date-time" else part["type"])


def _bounds(part: Schema) -> Iterator[str]:
    if "enum" in part:
        yield "one of " + ", ".join(f"`{value}`" for value in part["enum"])
    if "minimum" in part or "maximum" in part:
        yield _range(part.get("minimum"), part.get("maximum"))
    if "maxItems" in part:
        yield _range(part.get("minItems"), part["maxItems"]) + " items"
    if "maxProperties" in part:
        yield _range(None, part["maxProperties"]) + " entries"
    if "maxLength" in part and "format" not in part:
        yield _range(part.get("minLength"), part["maxLength"]) + " characters"
    if "pattern" in part:
        yield f"`{part['pattern']}`"
    if isinstance(part.get("items"), dict) and "properties" not in part["items"]:
        yield from (f"each {bound}" for bound in _bounds(part["items"]))


def _range(least: Any, most: Any) -> str:
    if least is None:
        return f"at most {most}"
    return f"at least {least}" if most is None else f"{least} to {most}"
