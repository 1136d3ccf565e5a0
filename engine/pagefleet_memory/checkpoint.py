"""What the headers of a checkpoint's files say about its weights."""

from collections.abc import Mapping
from dataclasses import dataclass

from pagefleet_memory.dtypes import SAFETENSORS_FLOATS, dtype_bytes


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    """Exact sizes read from file headers."""

    total_bytes: int
    bytes_by_dtype: Mapping[str, int]  # safetensors names: "BF16" -> bytes
    num_parameters: int

    @property
    def dtype(self) -> str | None:
        """The compute dtype that holds most bytes; None where nothing is stored as a float."""
        floats = {k: v for k, v in self.bytes_by_dtype.items() if k in SAFETENSORS_FLOATS}
        if not floats:
            return None
        return SAFETENSORS_FLOATS[max(sorted(floats), key=lambda name: floats[name])]

    def bytes_as(self, dtype: str) -> int:
        """Bytes once the floating tensors are cast to `dtype`; packed integers stay as they are."""
        size = dtype_bytes(dtype)
        total = self.total_bytes
        for name, stored in self.bytes_by_dtype.items():
            if name in SAFETENSORS_FLOATS:
                total += stored * size // dtype_bytes(SAFETENSORS_FLOATS[name]) - stored
        return total
