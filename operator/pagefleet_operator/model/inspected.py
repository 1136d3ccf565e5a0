"""InspectedModel: config.json and weight headers made into a shape."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pagefleet_memory import ModelShape, ShapeError
from pagefleet_operator.errors import InspectionError
from pagefleet_operator.model.safetensors_header import FileSummary, summarize


@dataclass(frozen=True, slots=True)
class InspectedModel:
    """A shape, and the identity of the files it was read from."""

    shape: ModelShape
    revision: str


def read_model(config: bytes, files: Sequence[FileSummary], *, revision: str) -> InspectedModel:
    """Without files the weights are counted from config.json."""
    try:
        parsed = json.loads(config)
    except ValueError as error:
        message = f"config.json is not JSON: {error}"
        raise InspectionError("ConfigUnreadable", message) from error
    if not isinstance(parsed, dict):
        raise InspectionError("ConfigUnreadable", "config.json is no JSON object")
    try:
        shape = ModelShape.from_config(parsed, checkpoint=summarize(files) if files else None)
        shape.require_engine_support()
    except ShapeError as error:
        reason = "UnsupportedModel" if error.field == "model_type" else "ConfigInvalid"
        raise InspectionError(reason, f"config.json: {error}") from error
    return InspectedModel(shape, revision)
