"""The reference of sampling: its random numbers, what it keeps and how often it draws.

Covered: Philox against published words, the chi-square of 1e5 draws, filters against a written-out
definition, ties. Left out: the kernels (tests/kernels_triton/test_sampling_kernel.py).
"""

import math

import pytest
import torch

from pagefleet_kernels.sampling import (
    SamplingRows,
    gumbel_reference,
    philox_reference,
    sample_reference,
    thresholds_reference,
)

LOGITS = [2.0, 1.0, 1.0, 0.5, 0.0, -1.0, -2.0, -float("inf")]


def ask(num_rows: int, **given: float) -> SamplingRows:
    def column(name: str, off: float, dtype: torch.dtype) -> torch.Tensor:
        return torch.full((num_rows,), given.get(name, off), dtype=dtype)

    return SamplingRows(
        temperature=column("temperature", 1.0, torch.float32),
        top_k=column("top_k", 0, torch.int32),
        top_p=column("top_p", 1.0, torch.float32),
        min_p=column("min_p", 0.0, torch.float32),
        seeds=column("seed", 1234, torch.int64),
        positions=torch.arange(num_rows),
    )


def test_the_random_words_are_philox() -> None:
    """Random123's known answers; the counter's last word is always zero here."""
    zero = torch.tensor([0])
    assert philox_reference(zero, zero, zero).tolist() == [0x6627E8D5]


def test_words_of_both_halves_of_seed_and_position_differ() -> None:
    tokens = torch.arange(4)[:, None]
    words = [
        philox_reference(torch.tensor(seed), tokens, torch.tensor(position))
        for seed in (0, 1, 1 << 32, -1)
        for position in (0, 1, 1 << 32)
    ]
    assert len(set(torch.cat(words).flatten().tolist())) == 4 * 12


def test_noise_has_the_mean_and_variance_of_gumbels_distribution() -> None:
    noise = gumbel_reference(torch.arange(20), torch.arange(20) + 5, vocab_size=50_000).double()
    assert float(noise.mean()) == pytest.approx(0.5772156649, abs=0.004)
    assert float(noise.var()) == pytest.approx(math.pi**2 / 6, rel=0.01)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_drawn_as_often_as_their_probability_says(temperature: float) -> None:
    draws, kept = 100_000, len(LOGITS) - 1
    logits = torch.tensor([LOGITS]).expand(draws, -1)
    found = sample_reference(logits, ask(draws, temperature=temperature))
    counts = torch.bincount(found, minlength=len(LOGITS)).double()
    assert counts[-1] == 0
    expected = torch.softmax(torch.tensor(LOGITS[:kept]).double() / temperature, 0) * draws
    chi_square = float(((counts[:kept] - expected).square() / expected).sum())
    assert chi_square < 22.46  # 6 degrees of freedom: p > 1e-3


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, 7),
        ({"top_k": 1}, 1),
        ({"top_k": 2}, 3),  # the third ties with the second
        ({"top_k": 4}, 4),
        ({"top_p": 0.01}, 1),
        ({"top_p": 0.5}, 3),
        ({"top_p": 0.85}, 4),
        ({"min_p": 1.0}, 1),
        ({"min_p": 0.3}, 3),
        ({"min_p": 0.2}, 4),
        ({"min_p": 0.2, "top_k": 3}, 3),
        ({"top_k": 3, "top_p": 0.5}, 1),  # 0.576 of what top_k leaves is the first one's
        ({"temperature": 10.0, "top_p": 0.5}, 4),
    ],
)
def test_filters_keep_what_they_are_defined_to_keep(given: dict[str, float], kept: int) -> None:
    threshold = thresholds_reference(torch.tensor([LOGITS]), ask(1, **given))
    values = torch.tensor(LOGITS)
    assert int(((values >= threshold) & (values > -torch.inf)).sum()) == kept
