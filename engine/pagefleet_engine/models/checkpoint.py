"""Read a model folder: config.json and the headers of its safetensors files."""

import json
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from pagefleet_engine.errors import ModelLoadError
from pagefleet_memory import CheckpointSummary, MemoryModelError, ModelShape
from pagefleet_memory.engine_weights import require_readable_weights


@dataclass(frozen=True, slots=True)
class _Tensor:
    """One entry of a safetensors header."""

    dtype: str
    num_bytes: int
    num_elements: int


def read_shape(folder: Path) -> ModelShape:
    """The shape of the model in a folder, with exact sizes from the headers."""
    config = read_json(folder / "config.json")
    try:
        shape = ModelShape.from_config(config, checkpoint=summarize_checkpoint(folder))
        shape.require_engine_support()
        require_readable_weights(shape)
    except MemoryModelError as error:
        raise ModelLoadError(f"{folder}/config.json: {error}") from error
    return shape


def read_json(path: Path) -> Mapping[str, object]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ModelLoadError(f"{path} does not hold a JSON object")
    return content


def summarize_checkpoint(folder: Path) -> CheckpointSummary:
    """Sizes by dtype over all safetensors files, without reading a tensor."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ModelLoadError(f"{folder} holds no *.safetensors file")
    sizes: Counter[str] = Counter()
    parameters = 0
    for path in files:
        for tensor in _read_header(path):
            sizes[tensor.dtype] += tensor.num_bytes
            parameters += tensor.num_elements
    return CheckpointSummary(
        total_bytes=sizes.total(), bytes_by_dtype=dict(sizes), num_parameters=parameters
    )


def _read_header(path: Path) -> list[_Tensor]:
    """From the JSON object in front of the tensors; its length is the file's first eight bytes."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        return [_parse_tensor(entry) for entry in header.values()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise ModelLoadError(f"{path} is not a safetensors file: {error}") from error


def _parse_tensor(entry: dict[str, Any]) -> _Tensor:
    begin, end = entry["data_offsets"]
    return _Tensor(str(entry["dtype"]), end - begin, prod(entry["shape"]))
