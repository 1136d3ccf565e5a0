"""The shape of the model that is asked for: from files of this machine, the catalogue or a hub."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from pagefleet_memory import MemoryModelError
from pagefleet_memory.catalogue import CatalogueModel, find_model, known_model
from pagefleet_operator.errors import InspectionError
from pagefleet_operator.inspect import hub_model
from pagefleet_operator.model.folder import inspect_config, inspect_folder
from pagefleet_operator.model.hub import inspect_hub
from pagefleet_operator.model.inspected import InspectedModel
from pagefleet_operator.model.source import FolderSource, HubSource, parse_model_uri
from pagefleet_operator.spec import InferenceDeployment

CATALOGUE_REVISION = "catalogue"


def read_model_of(infd: InferenceDeployment, model: str | None, *, hub: bool) -> InspectedModel:
    """What `model` names (a folder, a config.json, the catalogue), else spec.model.uri.

    A repository of the catalogue is not asked for over the network unless `hub` says so, or the
    spec names a revision.
    """
    with _inspection():
        if model is not None:
            return _named(model)
        source = parse_model_uri(infd.spec.model.uri)
        if isinstance(source, HubSource):
            return _repository(source.repo, infd.spec.model.revision, hub=hub)
        return _at_path(local_folder(infd))


def read_folder(folder: Path) -> InspectedModel:
    """A folder whose weights are there to be loaded."""
    with _inspection():
        return inspect_folder(folder)


def catalogued(name: str) -> CatalogueModel:
    """A model of the catalogue; its names that come close are in the error."""
    try:
        return known_model(name)
    except MemoryModelError as error:
        raise click.ClickException(f"--{error}") from error


def local_folder(infd: InferenceDeployment) -> Path:
    """The folder that spec.model.uri names on this machine."""
    source = parse_model_uri(infd.spec.model.uri)
    if isinstance(source, FolderSource):
        return Path(source.path)
    raise click.ClickException(
        f"spec.model.uri: {infd.spec.model.uri} is no folder of this machine; "
        "name one with --model FOLDER"
    )


@contextmanager
def _inspection() -> Iterator[None]:
    try:
        yield
    except InspectionError as error:
        raise click.ClickException(f"{error.reason}: {error.message}") from error


def _named(model: str) -> InspectedModel:
    if Path(model).exists():
        return _at_path(Path(model))
    return InspectedModel(catalogued(model).shape(), CATALOGUE_REVISION)


def _repository(repo: str, revision: str | None, *, hub: bool) -> InspectedModel:
    known = find_model(repo)
    if known is not None and not hub and revision is None:
        return InspectedModel(known.shape(), CATALOGUE_REVISION)
    return asyncio.run(inspect_hub(hub_model(repo, revision or "main")))


def _at_path(path: Path) -> InspectedModel:
    """Exact where the weights' files are there, else what config.json says."""
    if path.is_file():
        return inspect_config(path)
    try:
        return inspect_folder(path)
    except InspectionError as error:
        if error.reason != "NoSafetensors":
            raise
        return inspect_config(path / "config.json")
