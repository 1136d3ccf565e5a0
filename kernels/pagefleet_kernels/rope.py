"""RoPE in plain torch: turn queries and keys by their positions, then write keys and values."""

import torch

from pagefleet_kernels.gpu.checks import check_rope
from pagefleet_kernels.kv_pool import LayerCache
from pagefleet_kernels.store_kv import store_kv


def rope_store_kv_reference(
    query: torch.Tensor,  # [num_tokens, num_heads, head_dim]
    key: torch.Tensor,  # [num_tokens, num_kv_heads, head_dim]
    value: torch.Tensor,  # [num_tokens, num_kv_heads, v_head_dim]
    cache: LayerCache,
    slots: torch.Tensor,  # [num_tokens] int64; below zero: padding
    *,
    positions: torch.Tensor,  # [num_tokens] int64
    cos: torch.Tensor,  # [num_positions, rotary_dim / 2] float32
    sin: torch.Tensor,
    is_interleaved: bool = False,
) -> torch.Tensor:
    """Write turned keys and plain values; the turned query [num_tokens, num_heads, head_dim]."""
    check_rope(query, key, positions=positions, cos=cos, sin=sin)
    rows = cos[positions][:, None, :], sin[positions][:, None, :]
    store_kv(turn(key, *rows, is_interleaved=is_interleaved), value, cache, slots)
    return turn(query, *rows, is_interleaved=is_interleaved)


def turn(
    rows: torch.Tensor,  # [..., width]
    cos: torch.Tensor,  # [..., rotary_dim / 2] float32
    sin: torch.Tensor,
    *,
    is_interleaved: bool,
) -> torch.Tensor:
    """The first `rotary_dim` elements turned in float32, rounded to the rows' dtype.

    Pairs are elements i and i + rotary_dim / 2, interleaved 2i and 2i + 1.
    """
    rotary_dim = 2 * cos.shape[-1]
    part = rows[..., :rotary_dim].float()
    first, second = (part[..., ::2], part[..., 1::2]) if is_interleaved else part.chunk(2, dim=-1)
    turned = first * cos - second * sin, second * cos + first * sin
    merged = torch.stack(turned, dim=-1).flatten(-2) if is_interleaved else torch.cat(turned, -1)
    return torch.cat([merged.to(rows.dtype), rows[..., rotary_dim:]], dim=-1)
