"""Sampling: what each parameter does to a row, seeds, log-probabilities and broken rows."""

import math
from collections import Counter
from typing import Any

import pytest
import torch

from pagefleet_engine.executor import SampledToken
from pagefleet_engine.request import EngineRequest, SamplingParams
from pagefleet_engine.sampler import CHUNK_ROWS, Sampler
from pagefleet_engine.sequence import Sequence

EOS = 3


def sequence(
    sampling: SamplingParams, *, name: str = "a", prompt: tuple[int, ...] = (0,), output: str = ""
) -> Sequence:
    request = EngineRequest(
        request_id=name, prompt_token_ids=prompt, sampling=sampling, arrival_time=0.0
    )
    made = Sequence(request, arrival_index=0, max_tokens=100, by_priority=False)
    made.token_ids += [int(digit) for digit in output]
    return made


def sample(logits: list[float], sampling: SamplingParams, *, output: str = "") -> SampledToken:
    sampler = Sampler(seed=0, eos_token_ids=frozenset([EOS]))
    return sampler.sample(torch.tensor([logits]), [sequence(sampling, output=output)])["a"]


def drawn(logits: list[float], *, count: int = 300, **parameters: Any) -> Counter[int]:
    sampler = Sampler(seed=0, eos_token_ids=frozenset())
    row = sequence(SamplingParams(seed=1, **parameters))
    return Counter(
        sampler.sample(torch.tensor([logits]), [row])["a"].token_id for _ in range(count)
    )


def test_temperature_zero_takes_the_largest_logit() -> None:
    assert sample([0.0, 2.0, 1.0], SamplingParams(temperature=0)).token_id == 1


def test_frequencies_follow_the_distribution() -> None:
    counts = drawn([math.log(0.5), math.log(0.3), math.log(0.2)], count=2000)
    for token_id, share in enumerate((0.5, 0.3, 0.2)):
        assert counts[token_id] / 2000 == pytest.approx(share, abs=0.04)


def test_a_low_temperature_sharpens() -> None:
    assert set(drawn([0.0, 1.0], temperature=0.05)) == {1}


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
def test_cuts_keep_the_most_probable_tokens(parameters: dict[str, Any], kept: set[int]) -> None:
    # 0.6 + 0.25 of the first three's 0.95 is 0.89: with top_k=3 a top_p of 0.8 keeps two.
    logits = [math.log(share) for share in (0.6, 0.25, 0.1, 0.05)]
    assert set(drawn(logits, **parameters)) == kept


def test_top_p_over_a_flat_vocabulary_reaches_beyond_the_first_candidates() -> None:
    assert max(drawn([0.0] * 4000, count=400, top_p=0.9)) > 1024


def test_a_seed_gives_the_same_tokens_alone_and_in_a_batch() -> None:
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(0))

    def tokens(rows: int) -> list[int]:
        sampler = Sampler(seed=rows, eos_token_ids=frozenset())
        group = [sequence(SamplingParams(seed=7), name="mine")]
        group += [sequence(SamplingParams(), name=f"other{i}") for i in range(rows - 1)]
        return [sampler.sample(logits.expand(rows, -1), group)["mine"].token_id for _ in range(10)]

    assert tokens(1) == tokens(3) == tokens(CHUNK_ROWS + 5)


def test_different_seeds_differ() -> None:
    logits = [0.0] * 50
    first, second = SamplingParams(seed=1), SamplingParams(seed=2)
    assert sample(logits, first).token_id != sample(logits, second).token_id


def test_logit_bias_moves_the_choice() -> None:
    biased = SamplingParams(temperature=0, logit_bias={2: 100.0, 1: -100.0})
    assert sample([0.0, 5.0, 1.0], biased).token_id == 2


def test_penalties_shrink_what_was_said() -> None:
    logits = [1.0, 1.1, 0.0, 0.0]
    assert sample(logits, SamplingParams(temperature=0), output="1").token_id == 1
    for parameters in (
        SamplingParams(temperature=0, presence_penalty=0.5),
        SamplingParams(temperature=0, frequency_penalty=0.5),
    ):
        assert sample(logits, parameters, output="1").token_id == 0


def test_frequency_penalty_counts_and_presence_does_not() -> None:
    logits = [1.0, 1.5, 0.0, 0.0]
    presence = SamplingParams(temperature=0, presence_penalty=0.3)
    frequency = SamplingParams(temperature=0, frequency_penalty=0.3)
    assert sample(logits, presence, output="11").token_id == 1
    assert sample(logits, frequency, output="11").token_id == 0


def test_repetition_penalty_also_covers_the_prompt_and_negative_logits() -> None:
    repeated = SamplingParams(temperature=0, repetition_penalty=2.0)
    assert sample([1.0, 0.6], repeated).token_id == 1
    assert sample([-0.4, -0.6], repeated).token_id == 1


def test_min_tokens_forbids_ending() -> None:
    logits = [0.0, 1.0, 0.5, 9.0]
    early = SamplingParams(temperature=0, min_tokens=2, stop_token_ids=(1,))
    assert sample(logits, early, output="0").token_id == 2
    assert sample(logits, early, output="00").token_id == EOS


def test_logprobs_are_the_models_own() -> None:
    biased = SamplingParams(temperature=0, logprobs=2, logit_bias={0: 100.0})
    report = sample([0.0, 1.0, 2.0], biased).logprobs
    assert report is not None
    expected = torch.log_softmax(torch.tensor([0.0, 1.0, 2.0]), dim=0).tolist()
    assert report.token_id == 0
    assert report.logprob == pytest.approx(expected[0])
    assert [token_id for token_id, _ in report.top] == [2, 1]
    assert [value for _, value in report.top] == pytest.approx([expected[2], expected[1]])


def test_zero_logprobs_report_the_chosen_token_alone() -> None:
    report = sample([0.0, 1.0], SamplingParams(temperature=0, logprobs=0)).logprobs
    assert report is not None
    assert report.top == ()


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_broken_row_is_an_error_and_its_neighbour_is_not(
    broken: float, temperature: float
) -> None:
    sampler = Sampler(seed=0, eos_token_ids=frozenset())
    rows = [sequence(SamplingParams(temperature=temperature), name=name) for name in "ab"]
    result = sampler.sample(torch.tensor([[0.0, broken, 1.0], [0.0, 1.0, 99.0]]), rows)
    assert "not finite" in (result["a"].error or "")
    assert (result["b"].token_id, result["b"].error) == (2, None)


def test_a_forgotten_request_starts_its_seed_anew() -> None:
    sampler = Sampler(seed=0, eos_token_ids=frozenset())
    row = sequence(SamplingParams(seed=5))
    logits = torch.zeros(1, 100)
    first = [sampler.sample(logits, [row])["a"].token_id for _ in range(3)]
    sampler.forget("a")
    assert [sampler.sample(logits, [row])["a"].token_id for _ in range(3)] == first
