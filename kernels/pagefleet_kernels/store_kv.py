"""Write the keys and values of new tokens into their slots, in plain torch."""

import torch

from pagefleet_kernels.errors import ArgumentError
from pagefleet_kernels.kv_layout import int4_group
from pagefleet_kernels.kv_pool import FP8, CachePart, LayerCache
from pagefleet_kernels.rotation import rotate
from pagefleet_kernels.row_codes import encode_rows


class KVWriter:
    """Writes in place; works out where a step's tokens go once for all its layers."""

    def __init__(self) -> None:
        self._planned: torch.Tensor | None = None
        self._used: torch.Tensor | None = None  # tokens that are not padding; None: all
        self._blocks = self._offsets = torch.empty(0)

    def __call__(
        self,
        key: torch.Tensor,  # [num_tokens, num_kv_heads, head_dim]
        value: torch.Tensor,  # [num_tokens, num_kv_heads, v_head_dim]
        cache: LayerCache,
        slots: torch.Tensor,  # [num_tokens] int64: block_id * block_size + offset
    ) -> None:
        """Slots must not repeat; what belongs to one below zero is ignored."""
        check_rows("key", key, cache, slots, cache.head_dim)
        check_rows("value", value, cache, slots, cache.v_head_dim)
        if self._planned is not slots:
            self._plan(slots, cache.block_size)
        if self._used is not None:
            key, value = key[self._used], value[self._used]
        if cache.is_rotated:
            key = rotate(key, int4_group(cache.head_dim))
            value = rotate(value, int4_group(cache.v_head_dim))
        self._write(key, cache.keys)
        self._write(value, cache.values)

    def _plan(self, slots: torch.Tensor, block_size: int) -> None:
        self._planned, self._used = slots, None
        if bool((slots < 0).any()):
            self._used = (slots >= 0).nonzero()[:, 0]
            slots = slots[self._used]
        self._blocks, self._offsets = slots // block_size, slots % block_size

    def _write(self, rows: torch.Tensor, part: CachePart) -> None:
        codes, scales = encode_rows(rows, part.row_format)
        room = part.codes
        if codes.dtype == FP8:  # torch assigns by index in bytes only
            room, codes = room.view(torch.uint8), codes.view(torch.uint8)
        room[self._blocks, :, self._offsets] = codes
        if part.scales is not None and scales is not None:
            part.scales[self._blocks, :, self._offsets] = scales


def store_kv(
    key: torch.Tensor, value: torch.Tensor, cache: LayerCache, slots: torch.Tensor
) -> None:
    """What a KVWriter does, once."""
    KVWriter()(key, value, cache, slots)


def check_rows(
    name: str, rows: torch.Tensor, cache: LayerCache, slots: torch.Tensor, width: int
) -> None:
    """Refuse keys or values that are not this cache's, or not one a slot."""
    if rows.shape[1:] != (cache.num_kv_heads, width):
        hint = f"the cache holds [num_tokens, {cache.num_kv_heads}, {width}]"
        raise ArgumentError(name, tuple(rows.shape), hint)
    if rows.shape[:1] != slots.shape:
        hint = f"one row a slot, of which there are {tuple(slots.shape)}"
        raise ArgumentError(name, tuple(rows.shape), hint)
