"""RoPE in plain torch: turn queries and keys by their positions, then write keys and values."""

from dataclasses import dataclass

import torch

from pagefleet_kernels.gpu.checks import check_head_norms, check_rope
from pagefleet_kernels.kv_pool import LayerCache
from pagefleet_kernels.norm import HeadNorms, rms_norm_reference
from pagefleet_kernels.store_kv import store_kv


def rope_store_kv_reference(
    query: torch.Tensor,  # [num_tokens, num_heads, head_dim]
    key: torch.Tensor,  # [num_tokens, num_kv_heads, head_dim]
    value: torch.Tensor,  # [num_tokens, num_kv_heads, v_head_dim]
    cache: LayerCache,
    slots: torch.Tensor,  # [num_tokens] int64; below zero: padding
    *,
    positions: torch.Tensor | None = None,  # [num_tokens] int64; None: a table row per token
    cos: torch.Tensor,  # [num_positions, rotary_dim / 2] in any float, rows may be strided
    sin: torch.Tensor,
    norms: HeadNorms | None = None,
    is_interleaved: bool = False,
) -> torch.Tensor:
    """Write turned keys and plain values; the turned query [num_tokens, num_heads, head_dim]."""
    check_rope(query, key, positions=positions, cos=cos, sin=sin)
    if norms is not None:
        check_head_norms(query, norms)
    if positions is not None:
        cos, sin = cos[positions], sin[positions]
    ready = turn_heads(query, key, cos, sin, norms=norms, is_interleaved=is_interleaved)
    store_kv(ready.key, value, cache, slots)
    return ready.query


@dataclass(frozen=True, slots=True, eq=False)
class TurnedHeads:
    """Queries and keys as attention takes them."""

    query: torch.Tensor  # [num_tokens, num_heads, head_dim]
    key: torch.Tensor  # [num_tokens, num_kv_heads, head_dim]


def turn_heads(
    query: torch.Tensor,  # [num_tokens, num_heads, head_dim]
    key: torch.Tensor,  # [num_tokens, num_kv_heads, head_dim]
    cos: torch.Tensor,  # [num_tokens, rotary_dim / 2]
    sin: torch.Tensor,
    *,
    norms: HeadNorms | None = None,
    is_interleaved: bool = False,
) -> TurnedHeads:
    """Normalize, where there are norms, and turn."""
    if norms is not None:
        query = _norm_heads(query, norms.query, norms.eps)
        key = _norm_heads(key, norms.key, norms.eps)
    rows = cos[:, None, :], sin[:, None, :]
    return TurnedHeads(
        turn(query, *rows, is_interleaved=is_interleaved),
        turn(key, *rows, is_interleaved=is_interleaved),
    )


def turn(
    rows: torch.Tensor,  # [..., width]
    cos: torch.Tensor,  # [..., rotary_dim / 2]
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


def _norm_heads(rows: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    normed = rms_norm_reference(rows.reshape(-1, rows.shape[-1]), weight, eps=eps)
    return normed.view(rows.shape)
