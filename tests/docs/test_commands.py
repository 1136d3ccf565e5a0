"""Commands and values that the documents name exist."""

import re
from collections.abc import Iterator

import click
import yaml

from docs.generate.documents import FOLDER
from pagefleet_engine.api.app import ROUTES
from pagefleet_operator.cli import main as command_line
from tests.docs.markdown import ROOT, codes, document, rows, section

BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def shell_lines() -> list[tuple[str, str]]:
    """Every command in a block of shell, joined over continued lines."""
    found = []
    for path in [*sorted(FOLDER.glob("*.md")), ROOT / "README.md"]:
        for block in BLOCK.findall(path.read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                found.append((path.name, line.split(" #")[0].strip().removeprefix("$ ")))
    return found


def commands(program: str) -> list[list[str]]:
    pattern = re.compile(rf"^(?:\w+=\S+ )*{program} ")
    return [line.split() for _, line in shell_lines() if pattern.match(f"{line} ")]


def test_pagefleet_commands_and_their_options_exist() -> None:
    assert isinstance(command_line, click.Group)
    found = commands("pagefleet")
    assert found
    for _, name, *arguments in found:
        options = {text for p in command_line.commands[name].params for text in p.opts}
        assert {part for part in arguments if part.startswith("-")} <= options
        files = [part for part in arguments if part.startswith("examples/")]
        assert all((ROOT / file).exists() for file in files)


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        target
        for path in FOLDER.glob("*.md")
        for target in re.findall(r"`make ([a-z0-9-]+)", path.read_text())
    }
    assert named | {words[-1] for words in commands("make")} <= targets


def test_helm_commands_set_values_that_exist() -> None:
    values = flat(yaml.safe_load((ROOT / "charts/pagefleet/values.yaml").read_text()))
    named = {
        part.split("=")[0]
        for words in commands("helm")
        for flag, part in zip(words, words[1:], strict=False)
        if flag == "--set"
    }
    assert named and named <= set(values)


def test_curl_asks_for_endpoints_that_exist() -> None:
    paths = {route.path for route in ROUTES} | {"/healthz", "/readyz"}
    asked = {
        "/" + part.split("/", 3)[3].strip("'\"")
        for words in commands("curl")
        for part in words
        if part.startswith("http://")
    }
    assert asked and asked <= paths


def flat(values: dict[str, object], prefix: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def test_every_chart_value_is_in_the_document_and_no_other() -> None:
    values = flat(yaml.safe_load((ROOT / "charts/pagefleet/values.yaml").read_text()))
    written = {codes(row[0])[0] for row in rows(section(document("operations.md"), "Chart values"))}
    assert written == set(values)
