"""The key of a finished build: equal for equal inputs, different for any other."""

import dataclasses
from pathlib import Path

import pytest

from e2e.cluster import go_modules
from e2e.cluster.go_modules import CORE, GoModule, build_key, kubernetes_stamps

GO = "go1.26.8"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GoModule:
    monkeypatch.setattr(go_modules, "MODULES_FOLDER", tmp_path)
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "go.mod").write_text("module demo\n")
    (folder / "go.sum").write_text("")
    return GoModule(name="demo", programs=("demo",), packages=(".",))


def test_same_inputs_give_the_same_key(module: GoModule) -> None:
    assert build_key(module, go_version=GO) == build_key(module, go_version=GO)


@pytest.mark.parametrize("name", ["go.mod", "go.sum", "main.go"])
def test_every_file_of_the_folder_changes_the_key(module: GoModule, name: str) -> None:
    before = build_key(module, go_version=GO)
    (module.folder / name).write_text("changed\n")
    assert build_key(module, go_version=GO) != before


def test_compiler_and_stamps_change_the_key(module: GoModule) -> None:
    before = build_key(module, go_version=GO)
    stamped = dataclasses.replace(module, stamps=("main.version=v1",))
    assert build_key(module, go_version="go1.27.0") != before
    assert build_key(stamped, go_version=GO) != before


def test_expected_time_does_not_change_the_key(module: GoModule) -> None:
    slower = dataclasses.replace(module, usual_seconds=999)
    assert build_key(slower, go_version=GO) == build_key(module, go_version=GO)


def test_programs_know_their_version() -> None:
    stamps = kubernetes_stamps("v1.36.3")
    assert "k8s.io/component-base/version.gitVersion=v1.36.3" in stamps
    assert "k8s.io/component-base/version.gitMinor=36" in stamps


def test_every_module_is_pinned_by_a_committed_sum() -> None:
    for module in (*go_modules.CLUSTER_MODULES, *go_modules.ADDON_MODULES):
        assert (module.folder / "go.mod").is_file(), module.name
        has_dependencies = "require" in (module.folder / "go.mod").read_text()
        assert (module.folder / "go.sum").is_file() == has_dependencies, module.name


@pytest.mark.parametrize(
    ("module", "pin"),
    [
        (CORE, f"k8s.io/kubernetes {go_modules.KUBERNETES_VERSION}"),
        (CORE, f"helm.sh/helm/v4 {go_modules.HELM_VERSION}"),
        (go_modules.KWOK, f"sigs.k8s.io/kwok {go_modules.KWOK_VERSION}"),
    ],
)
def test_stamped_versions_are_the_pinned_ones(module: GoModule, pin: str) -> None:
    assert pin in (module.folder / "go.mod").read_text()
