"""A finished build is used again, an unfinished one never, and a failure says whose it is."""

import os
from pathlib import Path

import pytest

from e2e.cluster import build
from e2e.cluster.build import Builder, explain_failure
from e2e.cluster.errors import CommandFailed, MissingPrerequisite
from e2e.cluster.go_modules import GoModule
from e2e.cluster.progress import Progress

# Stands in for the compiler: it writes its output file, or fails as it is told.
COMPILER = """#!/bin/sh
echo "$@" >> "$0.calls"
if [ -e "$0.fails" ]; then cat "$0.fails"; exit 1; fi
while [ "$1" != "-o" ]; do shift; done
echo built > "$2"
"""
MODULE = GoModule(name="pause", programs=("pause",), packages=(".",), output="pause")


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "go"
    path.write_text(COMPILER)
    path.chmod(0o755)
    monkeypatch.setattr(build, "find_go", lambda: str(path))
    monkeypatch.setattr(build, "go_version", lambda go: "go1.26.8")
    return path


@pytest.fixture
def builder(compiler: Path, tmp_path: Path) -> Builder:
    return Builder(tmp_path / "bin", Progress())


def test_second_build_finds_the_first(builder: Builder, compiler: Path) -> None:
    builder.build([MODULE])
    builder.build([MODULE])
    assert (builder.folder(MODULE) / "pause").read_text() == "built\n"
    calls = Path(f"{compiler}.calls").read_text().splitlines()
    assert len(calls) == 1
    assert "-trimpath" in calls[0] and "-mod=readonly" in calls[0]


def test_compiler_cache_is_gone_after_the_build(builder: Builder) -> None:
    builder.build([MODULE])
    assert sorted(os.listdir(builder.programs)) == [".lock", builder.folder(MODULE).name]


def test_failed_build_leaves_nothing_that_looks_finished(builder: Builder, compiler: Path) -> None:
    fails = Path(f"{compiler}.fails")
    fails.write_text("undefined: x\n")
    with pytest.raises(CommandFailed, match="undefined: x"):
        builder.build([MODULE])
    assert os.listdir(builder.programs) == [".lock"]
    fails.unlink()
    builder.build([MODULE])
    assert builder.is_built(MODULE)


def test_scratch_of_a_killed_build_is_removed(builder: Builder) -> None:
    killed = builder.programs / ".building-killed" / "gocache"
    killed.mkdir(parents=True)
    builder.build([MODULE])
    assert not killed.exists()


def test_unreachable_modules_are_the_users_to_fix() -> None:
    log = 'go: downloading a v1\ngo: a@v1: Get "https://proxy": dial tcp: no such host\n'
    error = explain_failure("core", log)
    assert isinstance(error, MissingPrerequisite)
    assert "GOPROXY" in str(error)
    assert "\n" not in str(error)
