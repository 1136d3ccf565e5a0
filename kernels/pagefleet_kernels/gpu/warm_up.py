"""Compile every attention kernel that an engine can reach, before its first request."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from pagefleet_kernels.gpu.attention import paged_attention
from pagefleet_kernels.gpu.constants import shape_of
from pagefleet_kernels.gpu.device import DeviceTraits
from pagefleet_kernels.gpu.reachable import Limits, ReachingBatch, reachable
from pagefleet_kernels.gpu.store import rope_store_kv, store_kv
from pagefleet_kernels.kv_pool import LayerCache
from pagefleet_kernels.metadata import AttentionMetadata, DeviceLengths
from pagefleet_kernels.norm import HeadNorms


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttentionLayer:
    """One layer, and what it asks for beside plain causal attention."""

    cache: LayerCache
    num_heads: int
    window: int | None = None
    softcap: float | None = None
    sinks: torch.Tensor | None = None  # [num_heads]
    alibi_slopes: torch.Tensor | None = None  # [num_heads]
    rotary_dim: int = 0  # of keys that are turned when they are written; 0: they come ready
    has_head_norms: bool = False

    def kind(self) -> tuple[object, ...]:
        """Layers of one kind share their compiled kernels."""
        options = (self.window, self.softcap, self.sinks, self.alibi_slopes)
        dtypes = [each.dtype for each in (self.sinks, self.alibi_slopes) if each is not None]
        cache = self.cache
        strides = (cache.k_codes.stride()[1:], cache.v_codes.stride()[1:])
        present = tuple(each is not None for each in options)
        return (cache.mode, cache.head_dim, cache.v_head_dim, strides, self.num_heads, present,
                self.rotary_dim, self.has_head_norms, *dtypes)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """What was done, for the log."""

    kernels: int
    seconds: float


def warm_up(
    layers: Sequence[AttentionLayer],
    *,
    dtype: torch.dtype,
    limits: Limits,
    attend: Callable[..., torch.Tensor] = paged_attention,
) -> WarmUp:
    """Launch each kernel once on sequences of no tokens; nothing in a cache is read or written.

    `attend` is `paged_attention` with what a backend binds to it, such as its scratch.
    """
    started, kernels = time.perf_counter(), 0
    for layer in {each.kind(): each for each in layers}.values():
        _store_padding(layer, dtype)
        batches = reachable(shape_of(layer.num_heads, dtype, layer.cache), limits).values()
        for batch in batches:
            _attend_padding(layer, batch, dtype=dtype, limits=limits, attend=attend)
        kernels += 1 + len(batches)
    return WarmUp(kernels=kernels, seconds=time.perf_counter() - started)


def _store_padding(layer: AttentionLayer, dtype: torch.dtype) -> None:
    cache, device = layer.cache, layer.cache.k_codes.device
    key, value = (
        torch.zeros(1, cache.num_kv_heads, width, dtype=dtype, device=device)
        for width in (cache.head_dim, cache.v_head_dim)
    )
    slots = torch.full((1,), -1, device=device)
    if not layer.rotary_dim:
        store_kv(key, value, cache, slots)
        return
    query = torch.zeros(1, layer.num_heads, cache.head_dim, dtype=dtype, device=device)
    # As models make it: every angle twice in a row, and a kernel is compiled for rows' strides.
    table = torch.zeros(1, layer.rotary_dim, dtype=dtype, device=device)
    half, weight = table[:, : layer.rotary_dim // 2], query[0, 0]
    norms = HeadNorms(query=weight, key=weight, eps=1e-6) if layer.has_head_norms else None
    rope_store_kv(query, key, value, cache, slots, cos=half, sin=half, norms=norms)


def _attend_padding(
    layer: AttentionLayer,
    batch: ReachingBatch,
    *,
    dtype: torch.dtype,
    limits: Limits,
    attend: Callable[..., torch.Tensor],
) -> None:
    device = layer.cache.k_codes.device
    tokens = batch.num_seqs * batch.query_len
    starts = torch.arange(0, tokens + 1, batch.query_len, dtype=torch.int32, device=device)
    metadata = AttentionMetadata(
        query_starts=tuple(starts.tolist()),
        seq_lens=(0,) * batch.num_seqs,
        block_tables=torch.zeros(batch.num_seqs, 1, dtype=torch.int64, device=device),
        slot_mapping=torch.full((tokens,), -1, device=device),
        device_lengths=DeviceLengths(
            query_starts=starts,
            seq_lens=torch.zeros(batch.num_seqs, dtype=torch.int32, device=device),
            max_query_len=batch.query_len,
            max_seq_len=batch.max_seq_len,
        ),
    )
    query = torch.zeros(tokens, layer.num_heads, layer.cache.head_dim, dtype=dtype, device=device)
    attend(
        query,
        layer.cache,
        metadata,
        scale=1.0,
        window=layer.window,
        softcap=layer.softcap,
        sinks=layer.sinks,
        alibi_slopes=layer.alibi_slopes,
        is_deterministic=limits.is_deterministic,
        traits=DeviceTraits(num_processors=limits.num_processors, capability=limits.capability),
    )
