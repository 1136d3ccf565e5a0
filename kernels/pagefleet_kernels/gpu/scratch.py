"""Scratch: memory for the partial results of split attention, reserved once for all layers.

Layers run one after the other on one stream, so the next one may overwrite what the last one left.
It never moves, because captured graphs hold its address:

| values [num_seqs, most_query, num_heads, splits, v_head_dim] | stats [.., 2] float32 |
"""

import math
from collections.abc import Iterable

import torch

from pagefleet_kernels.errors import ArgumentError
from pagefleet_kernels.gpu.launch import AttentionShape
from pagefleet_kernels.gpu.reachable import Limits, decode_launch_within, decoding_batches

STATS_BYTES = 8  # of one partial result: two numbers of float32

Rows = tuple[int, int, int, int]  # num_seqs, most_query, num_heads, splits


class Scratch:
    """One piece of a device's memory, lent to one launch and its reduction at a time."""

    def __init__(self, num_bytes: int, device: torch.device) -> None:
        self._bytes = torch.empty(num_bytes, dtype=torch.uint8, device=device)

    @property
    def num_bytes(self) -> int:
        return self._bytes.numel()

    def partials(
        self, rows: Rows, *, width: int, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Room for values [*rows, width] of this type and stats [*rows, 2] of float32.

        ArgumentError where it is too small: no batch within the limits that it was sized for is.
        """
        count = math.prod(rows)
        needed = partial_bytes(rows, width=width, itemsize=dtype.itemsize)
        if needed > self.num_bytes:
            hint = f"{needed} are needed for partial results {rows}: scratch_bytes says how many"
            raise ArgumentError("scratch.num_bytes", self.num_bytes, hint)
        stats_at = count * width * dtype.itemsize  # widths are multiples of 16: it is aligned
        values = self._bytes[:stats_at].view(dtype).view(*rows, width)
        stats = self._bytes[stats_at:needed].view(torch.float32).view(*rows, 2)
        return values, stats


def partial_bytes(rows: Rows, *, width: int, itemsize: int) -> int:
    """Bytes of as many partial results, of `width` values and their stats."""
    return math.prod(rows) * (width * itemsize + STATS_BYTES)


def scratch_bytes(shapes: Iterable[AttentionShape], limits: Limits) -> int:
    """The most that any layer needs in any batch within the limits; 0 where no keys are split."""
    return max((_layer_bytes(shape, limits) for shape in set(shapes)), default=0)


def _layer_bytes(shape: AttentionShape, limits: Limits) -> int:
    itemsize = getattr(torch, shape.dtype).itemsize
    launches = (decode_launch_within(shape, each, limits) for each in decoding_batches(limits))
    return max(
        partial_bytes(each.partial_rows(shape), width=shape.v_head_dim, itemsize=itemsize)
        if each.is_split
        else 0
        for each in launches
    )
