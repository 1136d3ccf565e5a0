"""Launches of attention: pure arithmetic, without Triton.

Covered: splits over batch, heads and length, determinism, tiles of every shape, that warming up
reaches what any batch can need, and that a CPU engine never imports Triton. Left out: speed.
"""

import subprocess
import sys
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagefleet_kernels.gpu.launch import (
    MOST_DECODE_QUERY,
    MOST_SPLITS,
    SPLIT_TOKENS,
    AttentionShape,
    decode_tile,
    prefill_tile,
    reduce_heads,
    row_tiles_of,
    split_launch,
    store_heads,
)
from pagefleet_kernels.gpu.reachable import Limits, ReachingBatch, decode_compiled, reachable
from pagefleet_kernels.kv_layout import KV_MODES

PROCESSORS = 132  # of an H100 or H200


def shape(
    heads: tuple[int, int] = (32, 8),
    *,
    widths: tuple[int, int] = (128, 128),
    mode: str = "bfloat16",
    dtype: str = "bfloat16",
) -> AttentionShape:
    return AttentionShape(
        num_heads=heads[0],
        num_kv_heads=heads[1],
        head_dim=widths[0],
        v_head_dim=widths[1],
        kv_mode=mode,
        dtype=dtype,
    )


def splits(num_seqs: int, max_seq_len: int, heads: tuple[int, int] = (32, 8)) -> int:
    launch = split_launch(
        shape(heads),
        num_seqs=num_seqs,
        row_tiles=1,
        max_seq_len=max_seq_len,
        num_processors=PROCESSORS,
        is_deterministic=False,
    )
    assert launch.split_tokens == 0
    return launch.splits


@pytest.mark.parametrize(
    ("num_seqs", "max_seq_len", "expected"),
    [
        (1, 131072, 64),  # 8 programs for 264 places: 33, as a power of two
        (1, 4096, 4),  # never less than 1024 tokens a split
        (1, 500, 1),
        (8, 8192, 8),
        (32, 32768, 2),  # 256 programs are short of 264 places
        (64, 4096, 1),
        (256, 131072, 1),
    ],
)
def test_splits_fill_the_processors_and_no_more(
    num_seqs: int, max_seq_len: int, expected: int
) -> None:
    assert splits(num_seqs, max_seq_len) == expected


def test_one_key_head_of_a_rank_is_split_as_much_as_it_needs() -> None:
    # what counts is the heads of this rank: 8 ranks of one key head each leave processors idle
    assert splits(16, 131072, heads=(4, 1)) == 32
    assert splits(16, 131072, heads=(32, 8)) == 4


@settings(deadline=None)
@given(st.integers(1, 4096), st.integers(1, 1 << 20))
def test_splits_are_a_power_of_two_within_bounds(num_seqs: int, max_seq_len: int) -> None:
    found = splits(num_seqs, max_seq_len)
    assert found & (found - 1) == 0 and 1 <= found <= MOST_SPLITS


def test_deterministic_splits_depend_on_the_length_alone() -> None:
    found = {
        split_launch(
            shape(),
            num_seqs=num_seqs,
            row_tiles=row_tiles,
            max_seq_len=5000,
            num_processors=num_processors,
            is_deterministic=True,
        )
        for num_seqs, row_tiles, num_processors in product((1, 64), (1, 4), (108, 132))
    }
    assert [(each.splits, each.split_tokens) for each in found] == [(5, SPLIT_TOKENS)]


@pytest.mark.parametrize("mode", KV_MODES)
def test_tiles_hold_every_row_and_fit_a_split(mode: str) -> None:
    heads = ((8, 8), (28, 4), (64, 1), (5, 1))
    for dtype, width, each in product(("bfloat16", "float32"), (64, 80, 128, 192, 256), heads):
        given_shape = shape(each, widths=(width, width), mode=mode, dtype=dtype)
        for query_len in range(1, MOST_DECODE_QUERY + 1):
            tile = decode_tile(given_shape, query_len=query_len)
            rows = given_shape.group * query_len
            assert 16 <= tile.block_m <= 32 and tile.block_m & (tile.block_m - 1) == 0
            assert row_tiles_of(given_shape, tile, query_len=query_len) == -(-rows // tile.block_m)
            assert SPLIT_TOKENS % tile.tile == 0, "a split of fixed length is whole tiles"
            registers = tile.max_registers * 32 * tile.num_warps
            assert 2 * registers <= 65536, "two programs share a processor"
        for capability in (80, 90, 100):
            prefill = prefill_tile(given_shape, capability=capability)
            if capability >= 90 and dtype != "float32":
                assert prefill.block_m >= 64, "fewer rows do not reach Hopper's instructions"
                assert prefill.block_m >= 16 * prefill.num_warps, "warps would compute the same"


def test_programs_of_the_small_kernels_have_about_as_much_to_do() -> None:
    assert [reduce_heads(shape(widths=(width, width))) for width in (64, 80, 128, 256)] == [
        32,
        16,
        16,
        8,
    ]
    assert reduce_heads(shape((3, 1))) == 4
    assert [store_heads(8, width) for width in (64, 128, 256)] == [8, 8, 4]


@settings(deadline=None, max_examples=50)
@given(
    st.sampled_from([(32, 8), (64, 8), (5, 1), (4, 4)]),
    st.sampled_from(["bfloat16", "int4"]),
    st.booleans(),
    st.data(),
)
def test_warming_up_reaches_what_any_batch_needs(
    heads: tuple[int, int], mode: str, is_deterministic: bool, data: st.DataObject
) -> None:
    limits = Limits(
        max_num_seqs=data.draw(st.integers(1, 40)),
        max_model_len=data.draw(st.integers(16, 40000)),
        most_decode_query=data.draw(st.integers(1, 8)),
        is_deterministic=is_deterministic,
        num_processors=PROCESSORS,
        capability=90,
    )
    found = reachable(shape(heads, mode=mode), limits)
    batch = ReachingBatch(
        num_seqs=data.draw(st.integers(1, limits.max_num_seqs)),
        query_len=data.draw(st.integers(1, limits.most_decode_query)),
        max_seq_len=data.draw(st.integers(1, limits.max_model_len)),
    )
    assert decode_compiled(shape(heads, mode=mode), batch, limits) in found
    assert sum(each.is_prefill for each in found) == 1
    for compiled, reaching in found.items():
        assert reaching.num_seqs <= limits.max_num_seqs
        assert reaching.max_seq_len <= limits.max_model_len
        if not compiled.is_prefill:
            assert decode_compiled(shape(heads, mode=mode), reaching, limits) == compiled


def test_a_usual_engine_reaches_few_kernels() -> None:
    limits = Limits(
        max_num_seqs=256,
        max_model_len=131072,
        most_decode_query=1,
        is_deterministic=False,
        num_processors=PROCESSORS,
        capability=90,
    )
    assert len(reachable(shape(), limits)) == 8  # 1, 2, 4 .. 64 splits and prefill


def test_a_cpu_engine_imports_no_triton() -> None:
    source = "import sys, pagefleet_kernels; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", source]).returncode == 0
