"""paged_attention on a GPU: what paged_attention_reference takes and gives.

One launch answers the sequences of few tokens (decoding, speculative steps), with their keys split
among programs where the batch alone would leave processors idle, and a second one merges the
splits; another launch answers the sequences of many tokens. Both see the whole batch and skip what
is the other's, so grids depend on bounds alone and lengths are read on the device.
"""

import math
from dataclasses import dataclass

import torch

from pagefleet_kernels.attention_checks import check_options
from pagefleet_kernels.gpu.attention_kernel import attention_kernel
from pagefleet_kernels.gpu.checks import check_attention, check_block_ids
from pagefleet_kernels.gpu.constants import (
    attention_constants,
    read_views,
    record_stride,
    scales_of,
    shape_of,
)
from pagefleet_kernels.gpu.decode_launch import DecodeLaunch, decode_launch
from pagefleet_kernels.gpu.device import DeviceTraits, traits_of
from pagefleet_kernels.gpu.launch import (
    MOST_DECODE_QUERY,
    REDUCE_REGISTERS,
    AttentionShape,
    SplitLaunch,
    TileLaunch,
    power_of_two,
    prefill_tile,
    reduce_heads,
)
from pagefleet_kernels.gpu.reduce_kernel import reduce_kernel
from pagefleet_kernels.gpu.scratch import Scratch, partial_bytes
from pagefleet_kernels.kv_pool import LayerCache
from pagefleet_kernels.metadata import AttentionMetadata, DeviceLengths

LOG2_E = math.log2(math.e)
ANY_QUERY = 2**31 - 1  # tokens


@dataclass(frozen=True, slots=True, eq=False)
class _Partial:
    """Results of splits, to be merged."""

    values: torch.Tensor  # [num_seqs, most_query, num_heads, splits, v_head_dim]
    stats: torch.Tensor  # [num_seqs, most_query, num_heads, splits, 2] float32
    split: SplitLaunch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Call:
    """What both launches of one call share."""

    query: torch.Tensor
    out: torch.Tensor
    cache: LayerCache
    metadata: AttentionMetadata
    lengths: DeviceLengths
    shape: AttentionShape
    traits: DeviceTraits
    scale: float
    window: int | None
    softcap: float | None
    sinks: torch.Tensor | None
    alibi_slopes: torch.Tensor | None


def paged_attention(
    query: torch.Tensor,  # [num_tokens, num_heads, head_dim]
    cache: LayerCache,
    metadata: AttentionMetadata,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,  # [num_heads]
    alibi_slopes: torch.Tensor | None = None,  # [num_heads]
    out: torch.Tensor | None = None,
    scratch: Scratch | None = None,
    is_deterministic: bool = False,
    traits: DeviceTraits | None = None,
    debug: bool = False,
) -> torch.Tensor:
    """Causal attention of a packed batch over its paged cache: [num_tokens, num_heads, v_head_dim].

    Tokens of a sequence whose length is 0 give zeros. With `is_deterministic` a sequence's result
    does not depend, to the bit, on what else is in the batch. `scratch` holds partial results and
    is overwritten; without it they are allocated. `debug` looks for block ids past the pool and
    for lengths that do not belong together. ArgumentError names what cannot work.
    """
    per_head = {"sinks": sinks, "alibi_slopes": alibi_slopes}
    check_options(window=window, softcap=softcap)
    check_attention(query, cache, metadata, per_head=per_head, out=out)
    if debug:
        check_block_ids(metadata, cache)
    if out is None:
        out = query.new_empty(*query.shape[:2], cache.v_head_dim)
    if query.shape[0] == 0 or metadata.num_seqs == 0:
        return out
    call = _Call(
        query=query,
        out=out,
        cache=cache,
        metadata=metadata,
        lengths=metadata.device_lengths or lengths_of(metadata),
        shape=shape_of(query.shape[1], query.dtype, cache),
        traits=traits or traits_of(query.device),
        scale=scale,
        window=window,
        softcap=softcap,
        sinks=sinks,
        alibi_slopes=alibi_slopes,
    )
    most_query = decode_query_len(metadata, call.lengths, is_deterministic=is_deterministic)
    if most_query > 0:
        _decode(call, most_query, scratch=scratch, is_deterministic=is_deterministic)
    if call.lengths.max_query_len > most_query:
        _prefill(call, most_query + 1)
    return out


def lengths_of(metadata: AttentionMetadata) -> DeviceLengths:
    """The host's lengths on the device of the tables."""
    device = metadata.block_tables.device
    starts = torch.tensor(metadata.query_starts, dtype=torch.int32)
    return DeviceLengths(
        query_starts=starts.to(device),
        seq_lens=torch.tensor(metadata.seq_lens, dtype=torch.int32).to(device),
        max_query_len=int(starts.diff().max()),
        max_seq_len=max(metadata.seq_lens),
    )


def decode_query_len(
    metadata: AttentionMetadata, lengths: DeviceLengths, *, is_deterministic: bool
) -> int:
    """The most tokens of a sequence that the decoding launch answers; 0: it has nothing to do.

    Fixed in deterministic mode, where which launch answers must not depend on the batch.
    """
    if is_deterministic:
        return MOST_DECODE_QUERY
    if lengths.max_query_len <= MOST_DECODE_QUERY:
        return lengths.max_query_len
    if not metadata.query_starts:
        return 1
    starts = metadata.query_starts
    few = [b - a for a, b in zip(starts, starts[1:], strict=False) if b - a <= MOST_DECODE_QUERY]
    return max(few, default=0)


def _decode(
    call: _Call, most_query: int, *, scratch: Scratch | None, is_deterministic: bool
) -> None:
    launch = decode_launch(
        call.shape,
        num_seqs=call.metadata.num_seqs,
        most_query=most_query,
        max_seq_len=call.lengths.max_seq_len,
        num_processors=call.traits.num_processors,
        is_deterministic=is_deterministic,
    )
    programs = launch.row_tiles * call.shape.num_kv_heads
    grid = (launch.num_seqs, programs, launch.split.splits)
    if not launch.is_split:
        _attend(call, grid, launch.tile, bounds=(1, most_query))
        return
    partial = _partial(call, launch, scratch)
    _attend(call, grid, launch.tile, bounds=(1, most_query), partial=partial)
    _reduce(call, partial, most_query)


def _partial(call: _Call, launch: DecodeLaunch, scratch: Scratch | None) -> _Partial:
    rows, width = launch.partial_rows(call.shape), call.shape.v_head_dim
    dtype, device = call.query.dtype, call.query.device
    if scratch is None:
        scratch = Scratch(partial_bytes(rows, width=width, itemsize=dtype.itemsize), device)
    return _Partial(*scratch.partials(rows, width=width, dtype=dtype), launch.split)


def _prefill(call: _Call, least_query: int) -> None:
    tile = prefill_tile(call.shape, capability=call.traits.capability)
    tokens, num_seqs = call.query.shape[0], call.metadata.num_seqs
    row_tiles = tokens * call.shape.group // tile.block_m + num_seqs
    grid = (row_tiles, call.shape.num_kv_heads, 1)
    bounds = (least_query, ANY_QUERY)
    _attend(call, grid, tile, bounds=bounds, is_prefill=True)


def _attend(
    call: _Call,
    grid: tuple[int, int, int],
    tile: TileLaunch,
    *,
    bounds: tuple[int, int],
    is_prefill: bool = False,
    partial: _Partial | None = None,
) -> None:
    cache, query, tables = call.cache, call.query, call.metadata.block_tables
    out = call.out if partial is None else partial.values
    views = read_views(cache)
    softcap = 0.0 if call.softcap is None else call.softcap * LOG2_E
    attention_kernel[grid](
        query,
        out,
        None if partial is None else partial.stats,
        views.keys,
        views.values,
        scales_of(cache.keys).tensor,
        scales_of(cache.values).tensor,
        tables,
        call.lengths.query_starts,
        call.lengths.seq_lens,
        call.sinks,
        call.alibi_slopes,
        call.scale * LOG2_E,
        softcap,
        call.window or 0,
        call.metadata.num_seqs,
        *bounds,
        1 if partial is None else partial.split.splits,
        0 if partial is None else partial.split.splits.bit_length() - 1,
        0 if partial is None else partial.split.split_tokens,
        *query.stride()[:2],
        *call.out.stride()[:2],
        tables.stride(0),
        record_stride(cache),
        **attention_constants(cache, call.shape),
        BLOCK_M=tile.block_m,
        TILE=tile.tile,
        HAS_WINDOW=call.window is not None,
        HAS_SOFTCAP=call.softcap is not None,
        HAS_SINKS=call.sinks is not None,
        HAS_SLOPES=call.alibi_slopes is not None,
        SEARCH=is_prefill,
        SPLIT=partial is not None,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
        maxnreg=tile.max_registers,
    )


def _reduce(call: _Call, partial: _Partial, most_query: int) -> None:
    heads = reduce_heads(call.shape)
    grid = (call.metadata.num_seqs * most_query, -(-call.shape.num_heads // heads))
    reduce_kernel[grid](
        call.out,
        partial.values,
        partial.stats,
        call.lengths.query_starts,
        call.sinks,
        most_query,
        partial.split.splits,
        *call.out.stride()[:2],
        NUM_HEADS=call.shape.num_heads,
        V_WIDTH=call.shape.v_head_dim,
        V_PADDED=power_of_two(call.shape.v_head_dim),
        HEADS=heads,
        SPLITS_PADDED=power_of_two(partial.split.splits),
        HAS_SINKS=call.sinks is not None,
        num_warps=4,
        maxnreg=REDUCE_REGISTERS,
    )
