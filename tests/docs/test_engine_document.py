"""docs/engine.md has the engine's endpoints and error codes, and limits that still hold."""

import ast
from collections.abc import Iterator
from typing import Any

import pytest

from pagefleet_engine.api.app import ROUTES
from pagefleet_engine.config import EngineConfig
from pagefleet_engine.errors import ConfigError
from tests.docs.markdown import ROOT, codes, document, rows, section


def test_document_has_every_endpoint_and_no_other() -> None:
    endpoints = section(document("engine.md"), "HTTP endpoints")
    written = {codes(row[0])[0] for row in rows(endpoints)}
    assert written == {f"{route.method} {route.path.replace(':.+', '')}" for route in ROUTES}


def test_document_has_every_error_code_and_no_other() -> None:
    written = {codes(row[1])[0] for row in rows(section(document("engine.md"), "Errors"))}
    trees = [ast.parse(path.read_text()) for path in (ROOT / "engine").rglob("*.py")]
    assert written == {code for tree in trees for node in ast.walk(tree) for code in codes_at(node)}


def codes_at(node: ast.AST) -> Iterator[str]:
    """Of `code="..."`, as an argument or in a class."""
    match node:
        case ast.keyword(arg="code", value=ast.Constant(value=str(code))):
            yield code
        case ast.Assign(targets=[ast.Name(id="code")], value=ast.Constant(value=str(code))):
            yield code


@pytest.mark.parametrize(
    "setting",
    [
        {"swap_space": 1},
    ],
)
def test_limits_that_the_documents_state_still_hold(setting: dict[str, Any]) -> None:
    """When one falls, take it out of engine.md and operations.md."""
    with pytest.raises(ConfigError):
        EngineConfig(model="m", **setting)
