"""How often tokens are drawn, against their probabilities: Pearson's chi-square."""

import math
from collections.abc import Callable, Iterator

import torch

from bench.gpu.cases import Known, check_context, reason
from bench.gpu.rows import Row
from pagefleet_kernels.gpu.sampling import sample
from pagefleet_kernels.sampling import SamplingRows, thresholds_reference

DRAWS = 100_000
LEAST_P = 1e-3
VOCABULARY = 6000  # of two chunks
STEP = 500  # tokens between them can never be drawn
SETTINGS: dict[str, dict[str, float]] = {
    "temperature 0.7": {"temperature": 0.7},
    "top_k 5": {"top_k": 5},
    "top_p 0.8": {"top_p": 0.8},
    "min_p 0.1": {"min_p": 0.1},
}
Draw = Callable[[torch.Tensor, SamplingRows], torch.Tensor]


def rows(stage: str, known: Known) -> Iterator[Row]:
    """A row for every setting that has none."""
    for name, asked in SETTINGS.items():
        title = f"chi-square of {DRAWS:.0e} draws, {name}: -log10 p"
        if title in known.rows:
            continue
        try:
            p = draws_p(sample, torch.device("cuda"), count=DRAWS, **asked)
        except Exception as error:
            yield Row(stage=stage, name=title, failed=reason(error))
            check_context()
        else:
            rarity = -math.log10(p) if p > 0 else math.inf
            yield Row(stage=stage, name=title, error=rarity, tolerance=-math.log10(LEAST_P))


def draws_p(draw: Draw, device: torch.device, *, count: int, **asked: float) -> float:
    """How likely frequencies this far from the probabilities are: one distribution, many places."""
    logits = torch.full((1, VOCABULARY), -torch.inf, device=device)
    logits[0, ::STEP] = torch.linspace(2.0, -1.0, len(range(0, VOCABULARY, STEP)), device=device)
    found = draw(logits.expand(count, -1), same_rows(count, device, **asked))
    first = same_rows(1, device, **asked)
    kept = logits.masked_fill(logits < thresholds_reference(logits, first), -torch.inf)[0]
    expected = torch.softmax(kept.double() / first.temperature, dim=0)
    return chi_square_p(torch.bincount(found, minlength=VOCABULARY), expected)


def same_rows(
    count: int,
    device: torch.device,
    *,
    temperature: float = 1.0,
    top_k: float = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> SamplingRows:
    return SamplingRows(
        temperature=torch.full((count,), temperature, device=device),
        top_k=torch.full((count,), int(top_k), dtype=torch.int32, device=device),
        top_p=torch.full((count,), top_p, device=device),
        min_p=torch.full((count,), min_p, device=device),
        seeds=torch.full((count,), 1234, device=device),
        positions=torch.arange(count, device=device),
    )


def chi_square_p(
    counts: torch.Tensor,  # [vocab_size]
    expected: torch.Tensor,  # [vocab_size] float64, sums to one
) -> float:
    """The upper tail of the chi-square distribution; 0 if something impossible was drawn."""
    possible, total = expected > 0, counts.sum()
    if int(counts[possible].sum()) != int(total):
        return 0.0
    wanted = expected[possible] * total
    statistic = ((counts[possible] - wanted).square() / wanted).sum()
    freedom = torch.tensor((int(possible.sum()) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, statistic.cpu() / 2))
