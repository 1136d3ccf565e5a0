"""Sampling: what each parameter does to a row, seeds, log-probabilities and broken rows.

Covered: both ways to draw, the kernels' by their reference; chunks; the workspace of a chunk. Left
out: the kernels (tests/kernels_triton/test_sampling_kernel.py and test_sampler_on_triton.py).
"""

import math
from typing import Any

import pytest
import torch

from pagefleet_engine.request import SamplingParams
from pagefleet_engine.sampler import CHUNK_ROWS
from tests.support.sampled_rows import (
    DRAWS,
    EOS,
    WISHES,
    MakeDraw,
    count_drawn,
    different_rows,
    sample_one,
    sampler_of,
    sequence,
)


@pytest.fixture(params=list(DRAWS))
def draw(request: pytest.FixtureRequest) -> MakeDraw:
    return DRAWS[request.param]


def test_temperature_zero_takes_the_largest_logit(draw: MakeDraw) -> None:
    assert sample_one(draw, [0.0, 2.0, 1.0], SamplingParams(temperature=0)).token_id == 1


def test_frequencies_follow_the_distribution(draw: MakeDraw) -> None:
    counts = count_drawn(draw, [math.log(0.5), math.log(0.3), math.log(0.2)], count=2000)
    for token_id, share in enumerate((0.5, 0.3, 0.2)):
        assert counts[token_id] / 2000 == pytest.approx(share, abs=0.04)


def test_a_low_temperature_sharpens(draw: MakeDraw) -> None:
    assert set(count_drawn(draw, [0.0, 1.0], temperature=0.05)) == {1}


@pytest.mark.parametrize(
    ("parameters", "kept"),
    [
        ({"top_k": 2}, {0, 1}),
        ({"top_k": 1}, {0}),
        ({"top_k": 50}, {0, 1, 2, 3}),
        ({"top_p": 0.5}, {0}),
        ({"top_p": 0.65}, {0, 1}),
        ({"min_p": 0.5}, {0}),
        ({"min_p": 0.4}, {0, 1}),
        ({"top_k": 3, "top_p": 0.8}, {0, 1}),
    ],
)
def test_cuts_keep_the_most_probable_tokens(
    parameters: dict[str, Any], kept: set[int], draw: MakeDraw
) -> None:
    # 0.6 + 0.25 of the first three's 0.95 is 0.89: with top_k=3 a top_p of 0.8 keeps two.
    logits = [math.log(share) for share in (0.6, 0.25, 0.1, 0.05)]
    assert set(count_drawn(draw, logits, **parameters)) == kept


def test_top_p_over_a_flat_vocabulary_reaches_beyond_the_first_candidates(draw: MakeDraw) -> None:
    assert max(count_drawn(draw, [0.0] * 4000, count=400, top_p=0.9)) > 1024


def test_a_seed_gives_the_same_tokens_alone_and_in_a_batch(draw: MakeDraw) -> None:
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(0))

    def tokens(rows: int) -> list[int]:
        sampler, mine = sampler_of(draw, seed=rows), sequence(SamplingParams(seed=7), name="mine")
        group = [sequence(SamplingParams(), name=f"other{i}") for i in range(rows - 1)]
        for _ in range(10):
            drawn = sampler.sample(logits.expand(rows, -1), [*group, mine])
            mine.token_ids.append(drawn["mine"].token_id)
        return mine.output_token_ids

    assert tokens(1) == tokens(3) == tokens(CHUNK_ROWS + 5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_requests_with_different_wishes_change_nothing_for_each_other(
    dtype: torch.dtype, draw: MakeDraw
) -> None:
    logits = torch.randn(len(WISHES), 40, generator=torch.Generator().manual_seed(1)).to(dtype)
    before = logits.clone()
    rows = different_rows()
    together = sampler_of(draw).sample(logits, rows)
    assert torch.equal(logits, before), "graphs and reports read them again"
    for index, row in enumerate(rows):
        alone = sampler_of(draw).sample(logits[index : index + 1], [row])[row.request_id]
        shared = together[row.request_id]
        assert (shared.token_id, shared.error) == (alone.token_id, None)
        assert (shared.logprobs is None) == ("logprobs" not in WISHES[row.request_id])
        if shared.logprobs is not None:
            assert alone.logprobs is not None
            assert shared.logprobs.logprob == pytest.approx(alone.logprobs.logprob)
            assert dict(shared.logprobs.top) == pytest.approx(dict(alone.logprobs.top))
            assert len(shared.logprobs.top) == WISHES[row.request_id]["logprobs"]


def test_different_seeds_differ(draw: MakeDraw) -> None:
    logits = [0.0] * 50
    first, second = SamplingParams(seed=1), SamplingParams(seed=2)
    assert sample_one(draw, logits, first).token_id != sample_one(draw, logits, second).token_id


def test_logit_bias_moves_the_choice(draw: MakeDraw) -> None:
    biased = SamplingParams(temperature=0, logit_bias={2: 100.0, 1: -100.0})
    assert sample_one(draw, [0.0, 5.0, 1.0], biased).token_id == 2


def test_penalties_shrink_what_was_said(draw: MakeDraw) -> None:
    logits = [1.0, 1.1, 0.0, 0.0]
    assert sample_one(draw, logits, SamplingParams(temperature=0), output="1").token_id == 1
    for parameters in (
        SamplingParams(temperature=0, presence_penalty=0.5),
        SamplingParams(temperature=0, frequency_penalty=0.5),
    ):
        assert sample_one(draw, logits, parameters, output="1").token_id == 0


def test_frequency_penalty_counts_and_presence_does_not(draw: MakeDraw) -> None:
    logits = [1.0, 1.5, 0.0, 0.0]
    presence = SamplingParams(temperature=0, presence_penalty=0.3)
    frequency = SamplingParams(temperature=0, frequency_penalty=0.3)
    assert sample_one(draw, logits, presence, output="11").token_id == 1
    assert sample_one(draw, logits, frequency, output="11").token_id == 0


def test_repetition_penalty_also_covers_the_prompt_and_negative_logits(draw: MakeDraw) -> None:
    repeated = SamplingParams(temperature=0, repetition_penalty=2.0)
    assert sample_one(draw, [1.0, 0.6], repeated).token_id == 1
    assert sample_one(draw, [-0.4, -0.6], repeated).token_id == 1


def test_min_tokens_forbids_ending(draw: MakeDraw) -> None:
    logits = [0.0, 1.0, 0.5, 9.0]
    early = SamplingParams(temperature=0, min_tokens=2, stop_token_ids=(1,))
    assert sample_one(draw, logits, early, output="0").token_id == 2
    assert sample_one(draw, logits, early, output="00").token_id == EOS


def test_logprobs_are_the_models_own(draw: MakeDraw) -> None:
    biased = SamplingParams(temperature=0, logprobs=2, logit_bias={0: 100.0})
    report = sample_one(draw, [0.0, 1.0, 2.0], biased).logprobs
    assert report is not None
    expected = torch.log_softmax(torch.tensor([0.0, 1.0, 2.0]), dim=0).tolist()
    assert report.token_id == 0
    assert report.logprob == pytest.approx(expected[0])
    assert [token_id for token_id, _ in report.top] == [2, 1]
    assert [value for _, value in report.top] == pytest.approx([expected[2], expected[1]])


def test_zero_logprobs_report_the_chosen_token_alone(draw: MakeDraw) -> None:
    report = sample_one(draw, [0.0, 1.0], SamplingParams(temperature=0, logprobs=0)).logprobs
    assert report is not None
    assert report.top == ()


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_broken_row_is_an_error_and_its_neighbour_is_not(
    broken: float, temperature: float, draw: MakeDraw
) -> None:
    sampler = sampler_of(draw)
    rows = [sequence(SamplingParams(temperature=temperature), name=name) for name in "ab"]
    result = sampler.sample(torch.tensor([[0.0, broken, 1.0], [0.0, 1.0, 99.0]]), rows)
    assert "not finite" in (result["a"].error or "")
    assert (result["b"].token_id, result["b"].error) == (2, None)


@pytest.mark.parametrize("asked", [{"logit_bias": {1: -100.0}}, {"min_tokens": 9}])
def test_a_broken_row_stays_so_whatever_is_adjusted(asked: dict[str, Any], draw: MakeDraw) -> None:
    for broken in (float("nan"), float("inf")):
        logits = [0.0, 1.0, 2.0, 3.0]
        logits[EOS if "min_tokens" in asked else 1] = broken
        found = sample_one(draw, logits, SamplingParams(logprobs=1, **asked))
        assert (found.token_id, found.logprobs) == (0, None)
        assert "not finite" in (found.error or "")


def test_a_row_in_which_every_token_is_forbidden_is_an_error(draw: MakeDraw) -> None:
    nothing = SamplingParams(min_tokens=1, stop_token_ids=(0, 1, 2))
    assert sample_one(draw, [0.0, 1.0, 2.0, 3.0], nothing).error is not None


def test_an_end_outside_the_vocabulary_is_no_other_rows_token(draw: MakeDraw) -> None:
    rows = [
        sequence(SamplingParams(temperature=0, min_tokens=1), name="a"),
        sequence(SamplingParams(temperature=0), name="b"),
    ]
    found = sampler_of(draw).sample(torch.tensor([[0.0, 1.0], [0.0, 1.0]]), rows)
    assert [found[name].token_id for name in "ab"] == [1, 1]


def test_a_step_that_samples_nothing_gives_nothing(draw: MakeDraw) -> None:
    assert sampler_of(draw).sample(torch.empty(0, 9), []) == {}


def test_a_forgotten_request_starts_its_seed_anew(draw: MakeDraw) -> None:
    sampler, logits = sampler_of(draw), torch.zeros(1, 100)

    def tokens() -> list[int]:
        row = sequence(SamplingParams(seed=5))
        for _ in range(3):
            row.token_ids.append(sampler.sample(logits, [row])["a"].token_id)
        return row.output_token_ids

    first = tokens()
    sampler.forget("a")
    assert tokens() == first
