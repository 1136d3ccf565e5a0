"""Sampling in the interpreter against its reference.

Covered: drawn tokens with every filter, thresholds with ties, greedy ties, chunk borders, masked
and broken rows, independence of the batch, number formats, strided rows, refusals. The distribution
is checked on the reference (tests/kernels/test_sampling_reference.py), which these tests hold the
kernels to token by token. Left out: speed, logarithms of a GPU.
"""

import dataclasses

import pytest
import torch

from pagefleet_kernels.errors import ArgumentError
from pagefleet_kernels.gpu.sampling import find_thresholds, sample
from pagefleet_kernels.sampling import SamplingRows, sample_reference, thresholds_reference

INFINITY = float("inf")


def ask(
    num_rows: int,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> SamplingRows:
    return SamplingRows(
        temperature=torch.full((num_rows,), temperature),
        top_k=torch.full((num_rows,), top_k, dtype=torch.int32),
        top_p=torch.full((num_rows,), top_p),
        min_p=torch.full((num_rows,), min_p),
        seeds=torch.arange(num_rows) * 7_000_000_000 - 3,
        positions=torch.arange(num_rows) * 5_000_000_000 + 11,
    )


def logits_of(num_rows: int, vocab_size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(vocab_size)
    wide = torch.randn(num_rows, vocab_size + 24, generator=generator) * 3
    return wide.to(dtype)[:, :vocab_size]  # strided


FILTERS: dict[str, dict[str, float]] = {
    "none": {},
    "greedy": {"temperature": 0.0, "top_k": 3},
    "hot": {"temperature": 2.5},
    "top_k": {"top_k": 5},
    "top_k of all": {"top_k": 100_000},
    "top_k of one": {"top_k": 1},
    "top_p": {"top_p": 0.8},
    "top_p of one": {"top_p": 1e-9},
    "min_p": {"min_p": 0.1},
    "min_p of one": {"min_p": 1.0},
    "all": {"temperature": 0.7, "top_k": 40, "top_p": 0.9, "min_p": 0.02},
}


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize(("vocab_size", "num_rows"), [(1, 1), (50, 2), (5000, 2)])
def test_the_same_tokens_are_kept_and_drawn_as_by_the_reference(
    name: str, vocab_size: int, num_rows: int
) -> None:
    logits = logits_of(num_rows, vocab_size)
    rows = ask(num_rows, **FILTERS[name])  # type: ignore[arg-type]
    assert torch.equal(find_thresholds(logits, rows), thresholds_reference(logits, rows))
    assert torch.equal(sample(logits, rows), sample_reference(logits, rows))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_logits_tie_and_all_of_them_are_kept(dtype: torch.dtype) -> None:
    logits = logits_of(3, 300, dtype)
    for filters in ({"top_k": 20}, {"top_p": 0.5}, {"min_p": 0.05, "top_p": 0.9}):
        rows = ask(3, **filters)
        thresholds = find_thresholds(logits, rows)
        assert torch.equal(thresholds, thresholds_reference(logits, rows))
        assert torch.equal(sample(logits, rows), sample_reference(logits, rows))


def test_rows_with_different_wishes_share_a_batch_and_change_nothing_for_each_other() -> None:
    logits = logits_of(8, 700, torch.bfloat16)
    rows = ask(8)
    rows.temperature[::2] = 0.0
    rows.top_k[1::3] = 4
    rows.top_p[5:] = 0.6
    together = sample(logits, rows)
    order = torch.tensor([5, 2, 7, 0])
    few = SamplingRows(
        **{each.name: getattr(rows, each.name)[order] for each in dataclasses.fields(rows)}
    )
    assert torch.equal(sample(logits[order], few), together[order])


def test_seed_and_position_each_change_the_draw() -> None:
    logits = torch.zeros(1, 4000).expand(32, -1)
    fixed = ask(32)
    fixed.seeds.fill_(5)
    fixed.positions.fill_(9)
    assert sample(logits[:4], _first(fixed, 4)).unique().numel() == 1
    for tensor in (fixed.seeds, fixed.positions):
        tensor.copy_(torch.arange(32) << 32)  # the high words count too
        assert sample(logits, fixed).unique().numel() > 25
        tensor.fill_(5)


def _first(rows: SamplingRows, count: int) -> SamplingRows:
    return SamplingRows(
        **{each.name: getattr(rows, each.name)[:count] for each in dataclasses.fields(rows)}
    )


def test_the_lowest_id_wins_a_greedy_tie_within_and_across_chunks() -> None:
    logits = torch.zeros(2, 9000)
    logits[0, [4093, 4095, 4096, 8999]] = 7.0
    logits[1, 8999] = 7.0
    assert sample(logits, ask(2, temperature=0.0)).tolist() == [4093, 8999]


def test_a_masked_token_is_never_drawn() -> None:
    logits = torch.full((8, 5000), -INFINITY, dtype=torch.bfloat16)
    logits[:, [17, 4500]] = 1.0
    for rows in (ask(8), ask(8, top_p=0.99), ask(8, top_k=10), ask(8, min_p=0.5)):
        assert set(sample(logits, rows).tolist()) == {17, 4500}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("top_k", [0, 3])
def test_a_broken_row_says_so_and_spares_its_neighbours(temperature: float, top_k: int) -> None:
    logits = logits_of(5, 5000).clone()
    logits[1, 4999] = float("nan")
    logits[2, 0] = INFINITY
    logits[3] = -INFINITY
    found = sample(logits, ask(5, temperature=temperature, top_k=top_k))
    assert found[1:4].tolist() == [-1, -1, -1]
    assert torch.equal(
        found, sample_reference(logits, ask(5, temperature=temperature, top_k=top_k))
    )
    assert (found[[0, 4]] >= 0).all()


def test_without_filters_the_search_can_be_left_out() -> None:
    logits = logits_of(4, 900)
    assert torch.equal(sample(logits, ask(4), any_filter=False), sample(logits, ask(4)))


def test_no_rows_give_no_tokens() -> None:
    assert sample(torch.empty(0, 9), ask(0)).shape == (0,)


GOOD = torch.zeros(2, 8)


@pytest.mark.parametrize(
    ("logits", "rows", "named"),
    [
        (GOOD.int(), ask(2), "logits.dtype"),
        (GOOD[0], ask(8), "logits.shape"),
        (GOOD[:, :0], ask(2), r"logits.shape\[1\]=0"),
        (torch.zeros(8, 2).T, ask(2), r"logits.stride\(-1\)"),
        (GOOD, ask(3), r"temperature.shape=\(3,\): must be \(2\)"),
        (GOOD, dataclasses.replace(ask(2), top_k=torch.zeros(2)), "top_k.dtype"),
        (GOOD, dataclasses.replace(ask(2), seeds=torch.zeros(2)), "seeds.dtype"),
        (GOOD, dataclasses.replace(ask(2), positions=torch.zeros(4)[::2].long()[:1]), "positions"),
        (GOOD, dataclasses.replace(ask(2), top_p=torch.ones(4)[::2]), r"top_p.stride\(-1\)"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    logits: torch.Tensor, rows: SamplingRows, named: str
) -> None:
    for function in (sample, sample_reference):
        with pytest.raises(ArgumentError, match=named):
            function(logits, rows)
