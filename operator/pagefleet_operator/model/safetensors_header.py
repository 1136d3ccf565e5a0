"""What the header of a safetensors file says; the tensors behind it are never read."""

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pagefleet_memory import CheckpointSummary
from pagefleet_operator.errors import InspectionError

LENGTH_BYTES = 8
MOST_HEADER_BYTES = 100_000_000  # the format's own limit


@dataclass(frozen=True, slots=True)
class FileSummary:
    """Sizes of the tensors of one file; `file_bytes` is what the whole file must have."""

    bytes_by_dtype: Counter[str]
    num_parameters: int
    file_bytes: int


def header_length(name: str, prefix: bytes) -> int:
    """Bytes of the JSON that follows the first 8."""
    length = int.from_bytes(prefix[:LENGTH_BYTES], "little")
    if len(prefix) < LENGTH_BYTES or not 2 <= length <= MOST_HEADER_BYTES:
        raise InspectionError("WeightsUnreadable", f"{name} does not begin like a safetensors file")
    return length


def parse_header(name: str, text: bytes) -> FileSummary:
    try:
        entries: dict[str, Any] = json.loads(text)
        tensors = [entry for key, entry in entries.items() if key != "__metadata__"]
        sizes: Counter[str] = Counter()
        for tensor in tensors:
            begin, end = tensor["data_offsets"]
            sizes[str(tensor["dtype"])] += int(end) - int(begin)
        parameters = sum(math.prod(tensor["shape"]) for tensor in tensors)
        last = max((int(tensor["data_offsets"][1]) for tensor in tensors), default=0)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"the header of {name} cannot be read: {error!r}"
        raise InspectionError("WeightsUnreadable", message) from error
    return FileSummary(sizes, parameters, LENGTH_BYTES + len(text) + last)


def summarize(files: Iterable[FileSummary]) -> CheckpointSummary:
    sizes: Counter[str] = Counter()
    parameters = 0
    for file in files:
        sizes.update(file.bytes_by_dtype)
        parameters += file.num_parameters
    return CheckpointSummary(
        total_bytes=sizes.total(), bytes_by_dtype=dict(sizes), num_parameters=parameters
    )


def shard_names(index: bytes) -> list[str]:
    """The files that model.safetensors.index.json lists."""
    try:
        return sorted(set(json.loads(index)["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"model.safetensors.index.json cannot be read: {error!r}"
        raise InspectionError("WeightsUnreadable", message) from error
