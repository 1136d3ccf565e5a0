"""Name every image after a hash of what goes into it.

base <- tools <- operator-deps, engine-deps <- operator, engine      base <- model-smollm2

A name that exists needs no build; a change renews the images to the right of it and no others.
"""

import json
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cache import content_hash
from e2e.images.base import BASE_RECIPE
from e2e.images.dockerfile import ROOT, stages

# What each image keeps of the project's code.
OPERATOR_CODE = ("operator/pagefleet_operator", "engine/pagefleet_memory")
ENGINE_CODE = (
    "engine/pagefleet_engine",
    "engine/pagefleet_memory",
    "kernels/pagefleet_kernels",
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The content hash of every image."""

    base: str
    tools: str
    operator_deps: str
    engine_deps: str
    operator: str
    engine: str
    model: str


def read_recipe(model_folder: Path, *, root: Path = ROOT) -> Recipe:
    """Hash the inputs as they are in the working tree now."""
    stage = stages((root / "Dockerfile").read_text())
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    lock = (root / "requirements.lock").read_bytes()
    extras = project.pop("optional-dependencies")
    base = content_hash(BASE_RECIPE)
    tools = content_hash([base, stage["tools"]])

    def deps(extra: str) -> str:
        return content_hash([tools, stage[f"{extra}-deps"], lock, *extras[extra]])

    def image(name: str, dependencies: str, code: Iterable[str]) -> str:
        return content_hash(
            [dependencies, stage["wheel"], stage[name], _metadata(project), *_sources(root, code)]
        )

    operator_deps, engine_deps = deps("operator"), deps("engine")
    return Recipe(
        base=base,
        tools=tools,
        operator_deps=operator_deps,
        engine_deps=engine_deps,
        operator=image("operator", operator_deps, OPERATOR_CODE),
        engine=image("engine", engine_deps, ENGINE_CODE),
        model=content_hash([base, stage["model-smollm2"], model_folder.name]),
    )


def _metadata(project: dict[str, Any]) -> str:
    """The [project] table: it makes the console scripts."""
    return json.dumps(project, sort_keys=True)


def _sources(root: Path, folders: Iterable[str]) -> list[bytes]:
    """Path and content of every file, in an order that does not depend on the file system."""
    files = sorted(
        file
        for folder in folders
        for file in (root / folder).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    )
    return [part for file in files for part in (bytes(file.relative_to(root)), file.read_bytes())]
