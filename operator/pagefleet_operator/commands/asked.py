"""What a command is asked: an InferenceDeployment, from a file or made of a model's name."""

import re
from pathlib import Path
from typing import Any

import click
import yaml

from pagefleet_operator.commands.models_at_hand import catalogued
from pagefleet_operator.commands.what_if import with_changes
from pagefleet_operator.errors import SpecError
from pagefleet_operator.spec import API_VERSION, KIND, InferenceDeployment
from pagefleet_operator.spec.rule_table import MAX_NAME_LENGTH


def read_file(filename: Path, changes: dict[str, Any] | None = None) -> InferenceDeployment:
    """The first InferenceDeployment of the file, with the changes."""
    try:
        documents = list(yaml.safe_load_all(filename.read_text()))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{filename} is not YAML: {error}") from error
    for document in documents:
        if isinstance(document, dict) and document.get("kind") == KIND:
            return _parse(document, changes or {})
    raise click.ClickException(f"{filename} holds no {KIND}")


def made_for(model: str, changes: dict[str, Any] | None = None) -> InferenceDeployment:
    """One of nothing but a model: a path on this machine, or a name of the catalogue."""
    path = Path(model)
    if path.exists():
        uri, name = f"file://{path.resolve()}", path.resolve().stem
    else:
        repository = catalogued(model).name
        uri, name = f"hf://{repository}", repository.rpartition("/")[2]
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": _object_name(name)},
        "spec": {"model": {"uri": uri}},
    }
    return _parse(document, changes or {})


def _parse(document: dict[str, Any], changes: dict[str, Any]) -> InferenceDeployment:
    try:
        return InferenceDeployment.parse(with_changes(document, changes), local=True)
    except SpecError as error:
        raise click.ClickException(str(error)) from error


def _object_name(text: str) -> str:
    """The text as the name of an object: letters, digits and dashes, a letter first."""
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    name = words if words[:1].isalpha() else f"model-{words}"
    return name[:MAX_NAME_LENGTH].strip("-")
