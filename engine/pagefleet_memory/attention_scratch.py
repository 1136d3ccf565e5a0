"""What the engine's attention kernels reserve on a GPU for the partial results of split keys.

A batch too small for all processors has each sequence's keys split among programs, whose results
a second launch merges. The kernels choose splits by the rules of this file (pagefleet_kernels,
gpu/launch.py), and a test compares what they reserve with what is counted here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from pagefleet_memory.accelerator import Accelerator
from pagefleet_memory.dtypes import dtype_bytes
from pagefleet_memory.limits import EngineLimits
from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.products import most_processors

KERNEL_WIDTHS = (64, 80, 96, 128, 192, 256)  # of K and V rows; plain torch gathers others
_MOST_DECODE_QUERY = 8  # tokens of a sequence that the splitting launch answers
_LEAST_TOKENS_OF_SPLIT = 1024
_MOST_SPLITS = 64
_PROGRAMS_PER_PROCESSOR = 2
_LEAST_ROWS, _MOST_ROWS = 16, 32  # of queries that a program keeps at once
_MOST_WIDE_INT4_ROWS = 16
_WIDE = 128
_STATS_BYTES = 8  # largest score and sum of one partial result


@dataclass(frozen=True, slots=True)
class _Heads:
    """One layer on one rank."""

    queries: int
    keys: int
    k_width: int
    v_width: int


def has_kernels(shape: ModelShape, accelerator: Accelerator) -> bool:
    """Whether attention runs in the engine's kernels, which gather no keys."""
    widths = {each for heads in _layers(shape, 1) for each in (heads.k_width, heads.v_width)}
    return accelerator.kind == "GPU" and widths <= set(KERNEL_WIDTHS)


def scratch_bytes(shape: ModelShape, accelerator: Accelerator, limits: EngineLimits) -> int:
    """Bytes of one rank, which its layers share: the most that any batch needs."""
    if not has_kernels(shape, accelerator):
        return 0
    element = dtype_bytes(limits.dtype)
    # A slice has part of the GPU's processors, and needs less than the whole would.
    processors = accelerator.processors or most_processors()
    sizes = [
        _most_rows(
            heads,
            max_num_seqs=limits.max_num_seqs,
            most_query=min(_MOST_DECODE_QUERY, limits.max_num_batched_tokens),
            most_splits=_most_splits(limits.max_model_len),
            processors=processors,
            tile_rows=_tile_rows(heads, limits.resolved_kv_dtype),
        )
        * (heads.v_width * element + _STATS_BYTES)
        for heads in _layers(shape, limits.tensor_parallel_size)
    ]
    return max(sizes, default=0)


def _layers(shape: ModelShape, tensor_parallel_size: int) -> Iterator[_Heads]:
    for attention in (kind.attention for kind in shape.layer_kinds):
        if attention.kv_heads:
            yield _Heads(
                queries=-(-shape.num_attention_heads // tensor_parallel_size),
                keys=attention.local_kv_heads(tensor_parallel_size),
                k_width=attention.k_width,
                v_width=attention.v_width,
            )


def _most_splits(max_model_len: int) -> int:
    pieces = -(-max_model_len // _LEAST_TOKENS_OF_SPLIT)
    return min(_MOST_SPLITS, _power_of_two(pieces))


def _tile_rows(heads: _Heads, kv_dtype: str) -> int:
    is_wide = max(heads.k_width, heads.v_width) > _WIDE
    return _MOST_WIDE_INT4_ROWS if is_wide and kv_dtype == "int4" else _MOST_ROWS


@lru_cache(maxsize=4096)
def _most_rows(
    heads: _Heads,
    *,
    max_num_seqs: int,
    most_query: int,
    most_splits: int,
    processors: int,
    tile_rows: int,
) -> int:
    """Partial results of the worst batch: sequences x tokens x query heads x splits.

    Keys are split in the power of two that brings P programs to 2 x processors or more, so in at
    least s while P x s < 4 x processors: the most sequences of which that is true are the worst.
    """
    limit = 2 * _PROGRAMS_PER_PROCESSOR * processors
    group, worst = heads.queries // heads.keys, 0
    for query in range(1, most_query + 1):
        tile = min(max(_power_of_two(group * query), _LEAST_ROWS), tile_rows)
        programs = heads.keys * -(-group * query // tile)  # of one sequence
        splits = most_splits
        while splits > 1:
            sequences = min(max_num_seqs, (limit - 1) // (programs * splits))
            worst = max(worst, sequences * query * heads.queries * splits)
            splits //= 2
    return worst


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()
