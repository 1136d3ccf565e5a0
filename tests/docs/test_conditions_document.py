"""docs/conditions.md has the conditions and reasons of the code, found in its syntax trees.

Left out: whether a sentence is true.
"""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.docs.markdown import ROOT, codes, document, rows, section

WORD = re.compile(r"[A-Z][A-Za-z0-9]+")
# Where the code says a reason: callable -> position of the reason among its arguments.
POSITION = {
    "CoreFailed": 0,
    "DownloadError": 0,
    "EngineDeadError": 0,
    "InspectionError": 0,
    "PlanRefusal": 0,
    "RankError": 0,
    "Refusal": 0,
    "Veto": 0,
    "_error": 0,
    "Inspection": 1,
    "Rejection": 1,
    "Condition": 2,
}
# Ends the streams of a server that closes; it never reaches a record.
NO_CONDITION = {"Stopped"}


def words(node: ast.AST | None) -> Iterator[str]:
    """Reasons that an expression can be: a literal, or either branch."""
    match node:
        case ast.Constant(value=str(text)) if WORD.fullmatch(text):
            yield text
        case ast.IfExp(body=body, orelse=orelse):
            yield from words(body)
            yield from words(orelse)
        case ast.BoolOp(values=values):
            for value in values:
                yield from words(value)


def reasons_at(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args):
            if name in POSITION and len(args) > POSITION[name]:
                yield from words(args[POSITION[name]])
            for keyword in node.keywords:
                if keyword.arg == "reason":
                    yield from words(keyword.value)
        case ast.Assign(targets=[ast.Name(id="reason")], value=value):
            yield from words(value)
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(values=values)):
            for value in values if name.endswith("_REASONS") else ():
                yield from words(value)
        case ast.Return(value=ast.Tuple(elts=[first, *_])):
            yield from words(first)
        case ast.FunctionDef(name="reason"):
            for part in ast.walk(node):
                if isinstance(part, ast.Return):
                    yield from words(part.value)


def source_nodes() -> Iterator[ast.AST]:
    for root in ("operator", "engine"):
        for path in sorted((ROOT / root).rglob("*.py")):
            yield from ast.walk(ast.parse(path.read_text()))


SOURCE = list(source_nodes())


def test_conditions_document_has_every_reason_of_the_code_and_no_other() -> None:
    written = {codes(row[0])[0] for row in rows(document("conditions.md"))}
    in_code = {reason for node in SOURCE for reason in reasons_at(node)} - NO_CONDITION
    assert written == in_code


def condition_literals() -> Iterator[tuple[str, str, str]]:
    for node in SOURCE:
        match node:
            case ast.Call(
                func=ast.Name(id="Condition"),
                args=[
                    ast.Constant(value=str(kind)),
                    ast.Constant(value=str(status)),
                    ast.Constant(value=str(reason)),
                    *_,
                ],
            ):
                yield kind, status, reason


@pytest.mark.parametrize(("kind", "status", "reason"), sorted(set(condition_literals())))
def test_reason_stands_under_its_condition_with_its_status(
    kind: str, status: str, reason: str
) -> None:
    found = {codes(row[0])[0]: row[1] for row in rows(section(document("conditions.md"), kind))}
    assert found[reason] == status


def test_every_condition_type_has_a_section() -> None:
    kinds = {
        str(node.args[0].value)
        for node in SOURCE
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Condition"
        and isinstance(node.args[0], ast.Constant)
    }
    headings = set(re.findall(r"^## (\w+)$", document("conditions.md"), re.MULTILINE))
    assert headings == kinds
