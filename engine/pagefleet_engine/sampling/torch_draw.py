"""TorchDraw: draws row by row in plain torch, which is fastest on a CPU.

A row is drawn by inverting its cumulative distribution at one uniform number from the request's own
generator. Where logits tie at the border of top_k or top_p, as many are kept as were asked for.
"""

import random
from collections.abc import Sequence as Many

import torch

from pagefleet_engine.request import SamplingParams
from pagefleet_engine.sequence import Sequence
from pagefleet_kernels.sampling import BROKEN_ROW

NUM_CANDIDATES = 1024  # enough for nearly every top_p; beyond it the whole row is sorted


class TorchDraw:
    """Keeps one random generator per request that is being sampled."""

    def __init__(self, *, seed: int) -> None:
        self._generators: dict[str, random.Random] = {}
        self._seeds = random.Random(seed)

    def forget(self, request_id: str) -> None:
        self._generators.pop(request_id, None)

    def warm_up(self, logits: torch.Tensor) -> int:
        """Nothing is compiled."""
        return 0

    def draw(
        self,
        logits: torch.Tensor,  # [num_rows, vocab_size]
        sequences: Many[Sequence],
    ) -> torch.Tensor:
        best, best_ids = logits.max(dim=1)  # a NaN anywhere in the row is its maximum
        tokens = torch.where(torch.isfinite(best), best_ids, BROKEN_ROW)
        for index, token_id in enumerate(tokens.tolist()):
            sampling = sequences[index].sampling
            if token_id != BROKEN_ROW and not sampling.is_greedy:
                uniform = self._generator(sequences[index]).random()
                scaled = logits[index].float() / sampling.temperature
                tokens[index] = _draw(scaled, sampling, uniform)
        return tokens

    def _generator(self, sequence: Sequence) -> random.Random:
        name = sequence.request_id
        if name not in self._generators:
            seed = sequence.sampling.seed
            self._generators[name] = random.Random(self._seeds.random() if seed is None else seed)
        return self._generators[name]


def _draw(logits: torch.Tensor, sampling: SamplingParams, uniform: float) -> int:
    """Draw from softmax(logits) cut by min_p, top_k and top_p."""
    probabilities = torch.softmax(logits.double(), dim=0)
    if sampling.min_p > 0.0:
        probabilities[probabilities < sampling.min_p * probabilities.max()] = 0.0
    if sampling.top_k <= 0 and sampling.top_p >= 1.0:
        return _invert(probabilities, uniform)
    kept, ids = _candidates(probabilities, sampling)
    return int(ids[_invert(kept, uniform)])


def _candidates(
    probabilities: torch.Tensor, sampling: SamplingParams
) -> tuple[torch.Tensor, torch.Tensor]:
    """The most probable tokens that top_k and top_p leave, best first, with their ids."""
    vocab_size = probabilities.shape[0]
    first = sampling.top_k if sampling.top_k > 0 else NUM_CANDIDATES
    kept, ids = torch.topk(probabilities, min(first, vocab_size))
    total = kept.sum() if sampling.top_k > 0 else probabilities.sum()
    if kept.shape[0] < vocab_size and kept.sum() < sampling.top_p * total:
        kept, ids = torch.topk(probabilities, vocab_size)
    # A token stays while those before it have not reached top_p of what top_k left.
    before = torch.cumsum(kept, dim=0) - kept
    count = max(1, int((before < sampling.top_p * total).sum()))
    return kept[:count], ids[:count]


def _invert(probabilities: torch.Tensor, uniform: float) -> int:
    """The index at which the cumulative distribution passes `uniform`."""
    cumulative = torch.cumsum(probabilities, dim=0)
    target = (uniform * cumulative[-1]).reshape(1)
    index = int(torch.searchsorted(cumulative, target, right=True))
    return min(index, int(torch.count_nonzero(cumulative < cumulative[-1])))
