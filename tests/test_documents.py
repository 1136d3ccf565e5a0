"""What the documents promise exists: commands, files, and a lock file without addresses."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROMISED = (
    "help dev demo test unit lint types e2e cluster-up cluster-down images model crds docs lock"
).split()


def make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text()
    return set(re.findall(r"^([a-z0-9-]+):.*## ", text, re.MULTILINE))


@pytest.mark.parametrize("target", PROMISED)
def test_make_help_lists_the_command(target: str) -> None:
    assert target in make_targets()


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"])
def test_documents_name_only_commands_that_exist(document: str) -> None:
    named = re.findall(r"`?make (?:-s )?([a-z0-9-]+)", (ROOT / document).read_text())
    assert set(named) <= make_targets()


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"])
def test_documents_link_only_to_files_that_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    files = re.findall(r"`((?:examples|charts|crds|docs|bench|e2e|tests)/[\w./-]+)`", text)
    missing = [name for name in [*links, *files] if not (ROOT / name).exists()]
    assert missing == []


@pytest.mark.parametrize("lock", ["requirements.lock"])
def test_lock_file_names_versions_and_no_index(lock: str) -> None:
    lines = (ROOT / lock).read_text().splitlines()
    assert any(line.startswith("torch==") for line in lines)
    assert [line for line in lines if "://" in line or line.startswith("-")] == []


def test_ci_runs_what_the_readme_says() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert "make test" in (ROOT / "README.md").read_text()
