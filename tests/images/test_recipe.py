"""Each input renews the images that are made of it, and no others."""

from dataclasses import asdict
from pathlib import Path

import pytest

from e2e.images.dockerfile import ROOT
from e2e.images.recipe import ENGINE_CODE, OPERATOR_CODE, read_recipe

MODEL = Path("/models/smollm2-1")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small working tree with the real Dockerfile and pyproject.toml."""
    for name in ("Dockerfile", "pyproject.toml"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    (tmp_path / "requirements.lock").write_text("torch==1\n")
    for folder in {*OPERATOR_CODE, *ENGINE_CODE}:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").write_text("")
    return tmp_path


def renewed(tree: Path, file: str, old: str, new: str, *, model: Path = MODEL) -> set[str]:
    """The images whose name changes with an edit of one file."""
    before = asdict(read_recipe(MODEL, root=tree))
    path = tree / file
    text = path.read_text() if path.exists() else ""
    assert old in text
    path.write_text(text.replace(old, new, 1) if old else text + new)
    after = asdict(read_recipe(model, root=tree))
    return {name for name in before if before[name] != after[name]}


def test_nothing_changes_without_an_edit(tree: Path) -> None:
    assert renewed(tree, "README.md", "", "text") == set()


@pytest.mark.parametrize(
    ("file", "images"),
    [
        ("operator/pagefleet_operator/__init__.py", {"operator"}),
        ("engine/pagefleet_engine/__init__.py", {"engine"}),
        ("kernels/pagefleet_kernels/new.py", {"engine"}),
        ("engine/pagefleet_memory/__init__.py", {"operator", "engine"}),
        ("engine/pagefleet_engine/__pycache__/x.pyc", set()),
    ],
)
def test_code_renews_only_the_images_that_carry_it(tree: Path, file: str, images: set[str]) -> None:
    (tree / file).parent.mkdir(exist_ok=True)
    assert renewed(tree, file, "", "x = 1\n") == images


def test_lock_file_renews_dependencies_and_what_stands_on_them(tree: Path) -> None:
    renewed_images = renewed(tree, "requirements.lock", "torch==1", "torch==2")
    assert renewed_images == {"operator_deps", "engine_deps", "operator", "engine"}


def test_an_extra_renews_its_own_image(tree: Path) -> None:
    renewed_images = renewed(tree, "pyproject.toml", '"kopf>=', '"kopf>=1,>=')
    assert renewed_images == {"operator_deps", "operator"}


def test_tool_settings_and_dev_extra_renew_nothing(tree: Path) -> None:
    assert renewed(tree, "pyproject.toml", "line-length = 100", "line-length = 90") == set()
    assert renewed(tree, "pyproject.toml", '"ruff>=', '"ruff>=0,>=') == set()


def test_a_final_stage_does_not_renew_the_dependencies(tree: Path) -> None:
    edit = ('ENTRYPOINT ["pagefleet-engine"]', 'ENTRYPOINT ["pagefleet-engine", "-v"]')
    assert renewed(tree, "Dockerfile", *edit) == {"engine"}


def test_a_comment_in_the_dockerfile_renews_nothing(tree: Path) -> None:
    assert renewed(tree, "Dockerfile", "# --- the images;", "# --- these are the images;") == set()


def test_another_model_folder_renews_the_model_image(tree: Path) -> None:
    model = Path("/models/smollm2-2")
    assert renewed(tree, "README.md", "", "text", model=model) == {"model"}
