"""Which compiled kernels a configuration can reach, and a batch that launches each.

A kernel is compiled for what its launch fixes: its tile, whether keys are split, and the power of
two that the splits are merged in. None may be compiled while requests wait, or in a graph capture.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pagefleet_kernels.gpu.decode_launch import DecodeLaunch, decode_launch
from pagefleet_kernels.gpu.launch import (
    LEAST_TOKENS_OF_SPLIT,
    MOST_DECODE_QUERY,
    AttentionShape,
    TileLaunch,
    power_of_two,
    prefill_tile,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What bounds the batches of an engine, and where they run."""

    max_num_seqs: int
    max_model_len: int  # tokens
    most_decode_query: int  # tokens of a decoding sequence: 1, and more if it speculates
    is_deterministic: bool
    num_processors: int
    capability: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """One way in which attention is compiled for a layer."""

    is_prefill: bool
    tile: TileLaunch
    merged_splits: int  # the power of two that the reduction is compiled for; 0: nothing is split


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachingBatch:
    """Sequences alike, whose step launches one compiled kernel."""

    num_seqs: int
    query_len: int
    max_seq_len: int  # the bound that the host knows


def reachable(shape: AttentionShape, limits: Limits) -> dict[Compiled, ReachingBatch]:
    """Every compiled kernel of a layer of this shape, with the first batch that needs it."""
    found: dict[Compiled, ReachingBatch] = {}
    for batch in decoding_batches(limits):
        found.setdefault(decode_compiled(shape, batch, limits), batch)
    prefill = prefill_tile(shape, capability=limits.capability)
    longest = min(limits.max_model_len, MOST_DECODE_QUERY + 1)
    if longest > MOST_DECODE_QUERY:
        batch = ReachingBatch(num_seqs=1, query_len=longest, max_seq_len=longest)
        found[Compiled(is_prefill=True, tile=prefill, merged_splits=0)] = batch
    return found


def decoding_batches(limits: Limits) -> Iterator[ReachingBatch]:
    """Batches such that every other one within the limits is launched as one of them."""
    for query_len in range(1, min(limits.most_decode_query, MOST_DECODE_QUERY) + 1):
        for num_seqs in range(1, limits.max_num_seqs + 1):
            for max_seq_len in _bounds(limits.max_model_len):
                yield ReachingBatch(num_seqs=num_seqs, query_len=query_len, max_seq_len=max_seq_len)


def decode_compiled(shape: AttentionShape, batch: ReachingBatch, limits: Limits) -> Compiled:
    """What the decoding launch of this batch needs."""
    launch = decode_launch_within(shape, batch, limits)
    merged = power_of_two(launch.split.splits) if launch.is_split else 0
    return Compiled(is_prefill=False, tile=launch.tile, merged_splits=merged)


def decode_launch_within(
    shape: AttentionShape, batch: ReachingBatch, limits: Limits
) -> DecodeLaunch:
    """The decoding launch of this batch where an engine has these limits."""
    return decode_launch(
        shape,
        num_seqs=batch.num_seqs,
        most_query=MOST_DECODE_QUERY if limits.is_deterministic else batch.query_len,
        max_seq_len=batch.max_seq_len,
        num_processors=limits.num_processors,
        is_deterministic=limits.is_deterministic,
    )


def _bounds(max_model_len: int) -> list[int]:
    """Sequence lengths between which the number of splits changes."""
    bounds, bound = [], LEAST_TOKENS_OF_SPLIT
    while bound < max_model_len:
        bounds.append(bound)
        bound *= 2
    return [*bounds, max_model_len]
