"""InferenceDeployment: the custom resource, parsed once at the edge and refused with reasons."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pagefleet_operator.errors import SpecError
from pagefleet_operator.spec.rule_table import CEL_RULES, NAME_RULES
from pagefleet_operator.spec.rules import value_at
from pagefleet_operator.spec.spec import InferenceDeploymentSpec

GROUP = "pagefleet.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "InferenceDeployment"
PLURAL = "inferencedeployments"


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceDeployment:
    """One object: identity, parsed spec, and the status it was read with."""

    name: str
    namespace: str
    spec: InferenceDeploymentSpec
    uid: str = ""
    generation: int = 0
    deleting: bool = False
    status: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, body: Mapping[str, Any], *, local: bool = False) -> "InferenceDeployment":
        """From an object as the API server or a file gives it; SpecError for a wrong field.

        `local` allows what only `pagefleet run` can do (file:// models).
        """
        _check_kind(body)
        metadata = _mapping(body, "metadata")
        name = _check_name(metadata)
        return cls(
            name=name,
            namespace=str(metadata.get("namespace") or "default"),
            spec=parse_spec(_mapping(body, "spec"), local=local),
            uid=str(metadata.get("uid", "")),
            generation=int(metadata.get("generation", 0)),
            deleting="deletionTimestamp" in metadata,
            status=body.get("status") or {},
        )

    @property
    def served_model_name(self) -> str:
        return self.spec.model.name or self.name


def parse_spec(spec: Mapping[str, Any], *, local: bool = False) -> InferenceDeploymentSpec:
    try:
        parsed = InferenceDeploymentSpec.model_validate(dict(spec))
    except ValidationError as error:
        raise _spec_error(error.errors()[0]) from error
    for rule in CEL_RULES:
        if not (local and rule.cluster_only) and not rule.holds(parsed):
            value = value_at(parsed, rule.field.removeprefix("spec."))
            raise SpecError(rule.field, value, f"is refused: {rule.message}")
    return parsed


def _check_kind(body: Mapping[str, Any]) -> None:
    for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if body.get(key, wanted) != wanted:
            raise SpecError(key, body[key], f"is not {wanted}")


def _check_name(metadata: Mapping[str, Any]) -> str:
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise SpecError("metadata.name", name, "is missing: give the object a name")
    for rule in NAME_RULES:
        if not rule.holds(name):
            raise SpecError("metadata.name", name, f"is refused: {rule.message}")
    return name


def _mapping(body: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = body.get(key)
    if not isinstance(value, Mapping):
        raise SpecError(key, value, "must be a mapping")
    return value


def _spec_error(error: ErrorDetails) -> SpecError:
    path = "spec" + "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"]
    )
    if error["type"] == "missing":
        return SpecError(path, None, "is missing: it is required")
    if error["type"] == "extra_forbidden":
        return SpecError(path, error["input"], "is no field of an InferenceDeployment")
    return SpecError(path, error["input"], f"is refused: {_hint(error)}")


def _hint(error: ErrorDetails) -> str:
    message = error["msg"][:1].lower() + error["msg"][1:]
    if error["type"] == "string_type" and isinstance(error["input"], int | float):
        return f'{message}: quote it, as "{error["input"]}"'
    return message
