"""Sampler: from logits to the next token of each row.

Rows are taken in chunks, so the workspace does not grow with the number of requests. A row is
drawn by inverting its cumulative distribution at one uniform number from the request's own
generator: with a seed, the same tokens come out in whatever batch the request runs.
"""

import random
from collections import Counter
from dataclasses import dataclass

import torch

from pagefleet_engine.executor import SampledToken
from pagefleet_engine.request import SamplingParams, TokenLogprobs
from pagefleet_engine.sequence import Sequence

CHUNK_ROWS = 64  # the memory model's sampler term counts on it
NUM_CANDIDATES = 1024  # enough for nearly every top_p; beyond it the whole row is sorted

NOT_FINITE = "the model produced logits that are not finite; this request cannot go on"


@dataclass(slots=True)
class _Row:
    """One row of a chunk and the sequence that it continues."""

    sequence: Sequence
    logits: torch.Tensor  # [vocab_size] float32, changed in place


class Sampler:
    """Keeps one random generator per request that is being sampled."""

    def __init__(self, *, seed: int, eos_token_ids: frozenset[int]) -> None:
        self._eos_token_ids = eos_token_ids
        self._generators: dict[str, random.Random] = {}
        self._seeds = random.Random(seed)

    def forget(self, request_id: str) -> None:
        self._generators.pop(request_id, None)

    def sample(
        self,
        logits: torch.Tensor,  # [num_rows, vocab_size]
        sequences: list[Sequence],
    ) -> dict[str, SampledToken]:
        """The next token of each row's sequence, by request id."""
        sampled: dict[str, SampledToken] = {}
        for start in range(0, len(sequences), CHUNK_ROWS):
            chunk = sequences[start : start + CHUNK_ROWS]
            self._sample_chunk(logits[start : start + CHUNK_ROWS].float(), chunk, sampled)
        return sampled

    def _sample_chunk(
        self, logits: torch.Tensor, sequences: list[Sequence], sampled: dict[str, SampledToken]
    ) -> None:
        best, best_ids = logits.max(dim=1)  # a NaN anywhere in the row is its maximum
        usable = torch.isfinite(best).tolist()
        greedy_ids = best_ids.tolist()
        for index, sequence in enumerate(sequences):
            name = sequence.request_id
            if not usable[index]:
                sampled[name] = SampledToken(0, error=NOT_FINITE)
            elif _is_plain(sequence, self._eos_token_ids):
                sampled[name] = SampledToken(greedy_ids[index])
            else:
                sampled[name] = self._sample_row(_Row(sequence, logits[index]))

    def _sample_row(self, row: _Row) -> SampledToken:
        sampling = row.sequence.sampling
        raw = None if sampling.logprobs is None else torch.log_softmax(row.logits, dim=0)
        row.logits = row.logits.clone()
        self._adjust(row)
        if sampling.is_greedy:
            token_id = int(row.logits.argmax())
        else:
            uniform = self._generator(row.sequence).random()
            token_id = _draw(row.logits / sampling.temperature, sampling, uniform)
        return SampledToken(token_id, _report(raw, token_id, sampling.logprobs))

    def _generator(self, sequence: Sequence) -> random.Random:
        name = sequence.request_id
        if name not in self._generators:
            seed = sequence.sampling.seed
            self._generators[name] = random.Random(self._seeds.random() if seed is None else seed)
        return self._generators[name]

    def _adjust(self, row: _Row) -> None:
        """Apply what changes logits, in the order that users of the field expect."""
        sampling = row.sequence.sampling
        if row.sequence.num_output_tokens < sampling.min_tokens:
            _forbid(row.logits, self._eos_token_ids.union(sampling.stop_token_ids))
        if sampling.logit_bias:
            ids = torch.tensor(list(sampling.logit_bias), device=row.logits.device)
            bias = torch.tensor(list(sampling.logit_bias.values()), device=row.logits.device)
            row.logits.index_add_(0, ids, bias.float())
        if sampling.repetition_penalty != 1.0:
            _penalize_repetition(row, sampling.repetition_penalty)
        if sampling.presence_penalty != 0.0 or sampling.frequency_penalty != 0.0:
            _penalize_output(row, sampling)


def _is_plain(sequence: Sequence, eos_token_ids: frozenset[int]) -> bool:
    """Whether the row's largest logit is the answer."""
    sampling = sequence.sampling
    return (
        sampling.is_greedy
        and sampling.logprobs is None
        and not sampling.logit_bias
        and sampling.repetition_penalty == 1.0
        and sampling.presence_penalty == 0.0
        and sampling.frequency_penalty == 0.0
        and sequence.num_output_tokens >= sampling.min_tokens
    )


def _forbid(logits: torch.Tensor, token_ids: frozenset[int]) -> None:
    if token_ids:
        logits[torch.tensor(sorted(token_ids), device=logits.device)] = float("-inf")


def _penalize_repetition(row: _Row, penalty: float) -> None:
    """Shrink the logits of all tokens seen so far, prompt included, towards minus infinity."""
    seen = torch.tensor(sorted(set(row.sequence.token_ids)), device=row.logits.device)
    logits = row.logits[seen]
    row.logits[seen] = torch.where(logits > 0, logits / penalty, logits * penalty)


def _penalize_output(row: _Row, sampling: SamplingParams) -> None:
    counts = Counter(row.sequence.output_token_ids)
    if counts:
        ids = torch.tensor(list(counts), device=row.logits.device)
        times = torch.tensor(list(counts.values()), device=row.logits.device).float()
        penalty = sampling.presence_penalty + sampling.frequency_penalty * times
        row.logits[ids] -= penalty


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


def _report(raw: torch.Tensor | None, token_id: int, count: int | None) -> TokenLogprobs | None:
    """Log-probabilities of the model itself, before anything was adjusted."""
    if raw is None or count is None:
        return None
    values, ids = torch.topk(raw, count)
    top = tuple(zip(ids.tolist(), values.tolist(), strict=True))
    return TokenLogprobs(token_id, float(raw[token_id]), top)
