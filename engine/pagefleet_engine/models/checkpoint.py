"""Read a model folder: config.json and the headers of its safetensors files."""

import json
import struct
from collections import Counter
from collections.abc import Mapping
from math import prod
from pathlib import Path

from pagefleet_engine.errors import ModelLoadError
from pagefleet_memory import CheckpointSummary, MemoryModelError, ModelShape


def read_shape(folder: Path) -> ModelShape:
    """The shape of the model in a folder, with exact sizes from the headers."""
    config = read_json(folder / "config.json")
    try:
        return ModelShape.from_config(config, checkpoint=summarize_checkpoint(folder))
    except MemoryModelError as error:
        raise ModelLoadError(f"{folder}/config.json: {error}") from error


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
        for name, tensor in _read_header(path).items():
            if name != "__metadata__":
                begin, end = tensor["data_offsets"]
                sizes[tensor["dtype"]] += end - begin
                parameters += prod(tensor["shape"])
    return CheckpointSummary(
        total_bytes=sizes.total(), bytes_by_dtype=dict(sizes), num_parameters=parameters
    )


def _read_header(path: Path) -> dict[str, dict[str, list[int] | str]]:
    """The JSON object in front of the tensors; its length is the file's first eight bytes."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
    except (OSError, ValueError, struct.error, MemoryError) as error:
        raise ModelLoadError(f"{path} is not a safetensors file: {error}") from error
    assert isinstance(header, dict)
    return header
