"""Write keys and values into their slots on a GPU, turned by RoPE or as they come."""

from dataclasses import dataclass

import torch

from pagefleet_kernels.gpu.checks import (
    check_head_norms,
    check_positions,
    check_rope,
    check_slots,
    check_store,
)
from pagefleet_kernels.gpu.constants import (
    Constants,
    record_stride,
    scales_of,
    store_constants,
)
from pagefleet_kernels.gpu.store_kernel import store_kernel
from pagefleet_kernels.kv_pool import LayerCache
from pagefleet_kernels.norm import HeadNorms

NUM_WARPS = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rope:
    """What turning needs; the query goes along."""

    query: torch.Tensor
    turned: torch.Tensor  # the result
    positions: torch.Tensor | None
    cos: torch.Tensor
    sin: torch.Tensor
    norms: HeadNorms | None
    is_interleaved: bool


def store_kv(
    key: torch.Tensor,  # [num_tokens, num_kv_heads, head_dim]
    value: torch.Tensor,  # [num_tokens, num_kv_heads, v_head_dim]
    cache: LayerCache,
    slots: torch.Tensor,  # [num_tokens] int64: block_id * block_size + offset
    *,
    debug: bool = False,
) -> None:
    """As store_kv.store_kv; slots past the pool are looked for in debug mode alone."""
    check_store(key, value, cache, slots)
    if debug:
        check_slots(slots, cache)
    if key.shape[0]:
        _store(key, value, cache, slots, rope=None)


def rope_store_kv(
    query: torch.Tensor,  # [num_tokens, num_heads, head_dim]
    key: torch.Tensor,
    value: torch.Tensor,
    cache: LayerCache,
    slots: torch.Tensor,
    *,
    positions: torch.Tensor | None = None,  # [num_tokens] int64; None: a table row per token
    cos: torch.Tensor,  # [num_positions, rotary_dim / 2] in any float, rows may be strided
    sin: torch.Tensor,
    norms: HeadNorms | None = None,
    is_interleaved: bool = False,
    debug: bool = False,
) -> torch.Tensor:
    """As rope.rope_store_kv_reference, in one launch; slots past the pool and positions past the
    tables are looked for in debug mode alone."""
    check_store(key, value, cache, slots)
    check_rope(query, key, positions=positions, cos=cos, sin=sin)
    if norms is not None:
        check_head_norms(query, norms)
    if debug:
        check_slots(slots, cache)
        if positions is not None:
            check_positions(positions, cos)
    rope = _Rope(
        query=query,
        turned=torch.empty(query.shape, dtype=query.dtype, device=query.device),
        positions=positions,
        cos=cos,
        sin=sin,
        norms=norms,
        is_interleaved=is_interleaved,
    )
    if key.shape[0]:
        _store(key, value, cache, slots, rope=rope)
    return rope.turned


def _store(
    key: torch.Tensor,
    value: torch.Tensor,
    cache: LayerCache,
    slots: torch.Tensor,
    *,
    rope: _Rope | None,
) -> None:
    norms = None if rope is None else rope.norms
    constants = store_constants(
        cache,
        num_heads=0 if rope is None else rope.query.shape[1],
        rotary_dim=0 if rope is None else 2 * rope.cos.shape[1],
        is_interleaved=rope is not None and rope.is_interleaved,
    )
    store_kernel[(key.shape[0], parts_of_token(constants))](
        None if rope is None else rope.query,
        None if rope is None else rope.turned,
        key,
        value,
        cache.k_codes,
        cache.v_codes,
        scales_of(cache.keys).tensor,
        scales_of(cache.values).tensor,
        slots,
        None if rope is None else rope.positions,
        None if rope is None else rope.cos,
        None if rope is None else rope.sin,
        None if norms is None else norms.query,
        None if norms is None else norms.key,
        0.0 if norms is None else norms.eps,
        *((0, 0) if rope is None else rope.query.stride()[:2]),
        *key.stride()[:2],
        *value.stride()[:2],
        0 if rope is None else rope.cos.stride(0),
        record_stride(cache),
        **constants,
        num_warps=NUM_WARPS,
    )


def parts_of_token(constants: Constants) -> int:
    """Programs that write one token: key heads, value heads, and query heads if they are turned."""
    heads = {name: int(constants[name] or 0) for name in ("KV_HEADS", "NUM_HEADS")}
    each = {name: int(constants[name] or 1) for name in ("K_HEADS", "V_HEADS")}
    return (
        -(-heads["KV_HEADS"] // each["K_HEADS"])
        + -(-heads["KV_HEADS"] // each["V_HEADS"])
        + -(-heads["NUM_HEADS"] // each["K_HEADS"])
    )
