"""Paged attention in the interpreter against float64, over pools of garbage.

Covered: every two of KV mode, widths, heads, block size, kind of batch, features and splits; the
loss that each mode itself brings; that a result is written in place, into rows of another stride.
Left out: speed, and what only a GPU does (its order of sums, its tensor cores' precision).
"""

from dataclasses import replace
from typing import Any

import pytest
import torch

from pagefleet_kernels.gpu.attention import paged_attention
from tests.support.attention_problems import (
    Batch,
    exact_stored,
    exact_unstored,
    problem,
    relative_error,
)
from tests.support.pairwise import pairwise_cases

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
BATCHES: dict[str, Batch] = {
    "decode": [(1, 1), (1, 150), (1, 0), (1, 77)],
    "speculative": [(4, 4), (3, 140), (8, 9), (1, 33)],
    "prefill": [(37, 37), (9, 150)],
    "mixed": [(1, 140), (20, 60), (5, 5), (1, 0)],
}
FEATURES: dict[str, dict[str, Any]] = {
    "plain": {},
    "window": {"window": 21},
    "narrow": {"window": 1},
    "softcap": {"softcap": 4.0},
    "slopes": {"alibi_slopes": True},
    "sinks": {"sinks": True},
    "all": {"window": 50, "softcap": 6.0, "alibi_slopes": True, "sinks": True},
}
CASES = pairwise_cases(
    {
        "mode": [
            ("bfloat16", BF16),
            ("float16", FP16),
            ("float32", FP32),
            ("fp8_e4m3", BF16),
            ("int8", BF16),
            ("int8", FP16),
            ("int8k_int4v", BF16),
            ("int4", BF16),
            ("int4", FP16),
        ],
        "widths": [(64, 64), (80, 80), (96, 96), (128, 128), (192, 128), (256, 256), (64, 96)],
        "heads": [(2, 2), (8, 2), (3, 1), (5, 1), (24, 1)],
        "block_size": [8, 16, 24, 64, 256],
        "batch": list(BATCHES),
        "features": list(FEATURES),
        # a bound of the longest sequence: 4096 tokens give up to four splits
        "max_seq_len": [None, 4096],
    }
)
# fp32 sums in another order; the others round weights and results to their dtype, and what is
# quantized is computed in bf16 or fp16
TOLERANCES = {"float32": 2e-6, "float16": 1e-3, "int4": 8e-3}


def named(case: dict[str, Any]) -> str:
    mode, dtype = case["mode"]
    widths, heads = ("x".join(map(str, case[name])) for name in ("widths", "heads"))
    split = "split" if case["max_seq_len"] else "whole"
    kind = f"{case['batch']}-{case['features']}-{split}"
    return f"{mode}-{str(dtype)[6:]}-{widths}-{heads}-{case['block_size']}-{kind}"


@pytest.mark.parametrize("case", CASES, ids=named)
def test_agrees_with_float64(case: dict[str, Any]) -> None:
    mode, dtype = case["mode"]
    given = problem(
        BATCHES[case["batch"]],
        mode=mode,
        dtype=dtype,
        heads=case["heads"],
        widths=case["widths"],
        block_size=case["block_size"],
        features=FEATURES[case["features"]],
        max_seq_len=case["max_seq_len"],
    )
    out = given.blank()
    found = paged_attention(given.query, given.cache, given.metadata, out=out, **given.options)
    assert found is out
    assert relative_error(out, exact_stored(given)) < TOLERANCES.get(mode, 5e-3)


@pytest.mark.parametrize(
    ("mode", "loss"),
    [("fp8_e4m3", 6e-2), ("int8", 1.5e-2), ("int8k_int4v", 2e-1), ("int4", 2.5e-1)],
)
def test_a_mode_loses_what_it_is_known_to_lose(mode: str, loss: float) -> None:
    given = problem([(1, 200), (9, 60)], mode=mode, heads=(8, 2), widths=(128, 128))
    found = paged_attention(given.query, given.cache, given.metadata, **given.options)
    error = relative_error(found, exact_unstored(given))
    assert loss / 20 < error < loss


def test_scores_far_apart_neither_overflow_nor_vanish() -> None:
    given = problem([(1, 150), (12, 40)], mode="float32", dtype=FP32)
    given.query.mul_(40.0)  # scores up to several hundred: the weight is one key's
    found = paged_attention(given.query, given.cache, given.metadata, **given.options)
    assert relative_error(found, exact_stored(given)) < 1e-5


def test_rows_may_be_strided() -> None:
    given = problem([(1, 40), (12, 12)], heads=(4, 2))
    wide = torch.full((13, 7, 64), float("nan"), dtype=BF16)
    wide[:, 1:5] = given.query
    out = torch.full((13, 4, 80), float("nan"), dtype=BF16)
    paged_attention(wide[:, 1:5], given.cache, given.metadata, out=out[..., :64], **given.options)
    expected = paged_attention(given.query, given.cache, given.metadata, **given.options)
    assert torch.equal(out[..., :64], expected)
    assert out[..., 64:].isnan().all()


def test_a_broken_sequence_shows_and_does_not_reach_its_neighbours() -> None:
    given = problem([(1, 40), (1, 70), (12, 20)], heads=(4, 2), max_seq_len=4096)
    broken = given.metadata.block_tables[1, 2]
    given.pool.records[broken] = 0xFF
    found = paged_attention(given.query, given.cache, given.metadata, **given.options)
    assert found[1].isnan().all()
    assert found[[0, *range(2, 14)]].isfinite().all()


@pytest.mark.parametrize("mode", ["bfloat16", "int4"])
def test_a_window_may_begin_at_any_place_of_a_tile(mode: str) -> None:
    # the oldest key that is seen is the last, or the first, of a tile of 16, 32, 64 or 128
    batch = [(1, 21 + key) for tile in (16, 32, 64, 128) for key in (tile - 1, tile)]
    given = problem(batch, mode=mode, heads=(2, 1), features={"window": 21})
    found = paged_attention(given.query, given.cache, given.metadata, **given.options)
    error = (found.double() - exact_stored(given)).norm(dim=2) / exact_stored(given).norm(dim=2)
    assert float(error.max()) < 1e-2, "a key that is left out changes a row by 2 % or more"


def test_blocks_behind_a_window_are_not_read() -> None:
    given = problem([(1, 150)], features={"window": 21})
    expected = paged_attention(given.query, given.cache, given.metadata, **given.options)
    given.pool.records[given.metadata.block_tables[0, : 128 // 16]] = 0xFF
    found = paged_attention(given.query, given.cache, given.metadata, **given.options)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("is_deterministic", [False, True])
def test_sequences_without_tokens_in_this_step_are_passed_over(is_deterministic: bool) -> None:
    given = problem([(1, 20), (0, 33), (12, 12), (0, 0), (1, 7)])
    out = given.blank()
    given.options.update(out=out, is_deterministic=is_deterministic)
    paged_attention(given.query, given.cache, given.metadata, **given.options)
    del given.options["out"], given.options["is_deterministic"]
    assert relative_error(out, exact_stored(given)) < 5e-3


def test_nothing_to_do() -> None:
    given = problem([(1, 5)])
    none = replace(
        given.metadata,
        query_starts=(0,),
        seq_lens=(),
        block_tables=given.metadata.block_tables[:0],
    )
    waiting = replace(given.metadata, query_starts=(0, 0))
    for metadata in (none, waiting):
        empty = paged_attention(given.query[:0], given.cache, metadata, **given.options)
        assert empty.shape == (0, 4, 64)
