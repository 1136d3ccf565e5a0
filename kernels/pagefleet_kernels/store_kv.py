"""Write the keys and values of new tokens into their slots, in plain torch."""

import torch

from pagefleet_kernels.errors import ArgumentError
from pagefleet_kernels.kv_layout import int4_group
from pagefleet_kernels.kv_pool import FP8, CachePart, LayerCache
from pagefleet_kernels.rotation import rotate
from pagefleet_kernels.row_codes import encode_rows


def store_kv(
    key: torch.Tensor,  # [num_tokens, num_kv_heads, head_dim]
    value: torch.Tensor,  # [num_tokens, num_kv_heads, v_head_dim]
    cache: LayerCache,
    slots: torch.Tensor,  # [num_tokens] int64: block_id * block_size + offset
) -> None:
    """Write in place; slots must not repeat, and what belongs to one below zero is ignored."""
    check_rows("key", key, cache, cache.head_dim)
    check_rows("value", value, cache, cache.v_head_dim)
    padding = slots < 0
    if bool(padding.any()):
        key, value, slots = key[~padding], value[~padding], slots[~padding]
    if cache.is_rotated:
        key = rotate(key, int4_group(cache.head_dim))
        value = rotate(value, int4_group(cache.v_head_dim))
    blocks, offsets = slots // cache.block_size, slots % cache.block_size
    _write(key, cache.keys, blocks, offsets)
    _write(value, cache.values, blocks, offsets)


def _write(
    rows: torch.Tensor, part: CachePart, blocks: torch.Tensor, offsets: torch.Tensor
) -> None:
    codes, scales = encode_rows(rows, part.row_format)
    room = part.codes
    if codes.dtype == FP8:  # torch assigns by index in bytes only
        room, codes = room.view(torch.uint8), codes.view(torch.uint8)
    room[blocks, :, offsets] = codes
    if part.scales is not None and scales is not None:
        part.scales[blocks, :, offsets] = scales


def check_rows(name: str, rows: torch.Tensor, cache: LayerCache, width: int) -> None:
    """Refuse keys or values that are not this cache's."""
    if rows.shape[1:] != (cache.num_kv_heads, width):
        hint = f"the cache holds [num_tokens, {cache.num_kv_heads}, {width}]"
        raise ArgumentError(name, tuple(rows.shape), hint)
