"""Sampler: from logits to the next token of each row.

Rows whose logits are copied, to adjust or to report them, are taken in chunks, so the workspace
does not grow with the number of requests. Everything stays on the device until the end of the step,
when one transfer brings all tokens and log-probabilities.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Many

import torch

from pagefleet_engine.executor import SampledToken
from pagefleet_engine.sampling.adjust import adjusted, needs_adjusting
from pagefleet_engine.sampling.draw import Draw
from pagefleet_engine.sampling.logprobs import describe, measure
from pagefleet_engine.sequence import Sequence
from pagefleet_kernels.sampling import BROKEN_ROW

CHUNK_ROWS = 64  # the memory model's sampler term counts on it

NOT_FINITE = "the model produced logits that are not finite; this request cannot go on"


class Sampler:
    """Adjusts logits, lets `draw` choose, and reports."""

    def __init__(self, draw: Draw, *, eos_token_ids: frozenset[int]) -> None:
        self._draw = draw
        self._eos_token_ids = eos_token_ids

    def forget(self, request_id: str) -> None:
        self._draw.forget(request_id)

    def warm_up(self, logits: torch.Tensor) -> int:
        """Compile what logits of this type and width need; how many ways were run."""
        return self._draw.warm_up(logits)

    def sample(
        self,
        logits: torch.Tensor,  # [num_rows, vocab_size]
        sequences: list[Sequence],
    ) -> dict[str, SampledToken]:
        """The next token of each row's sequence, by request id."""
        if not sequences:
            return {}
        count = max(each.sampling.logprobs or 0 for each in sequences)
        tokens, reports = [], []
        for rows in _chunks([_is_copied(each) for each in sequences]):
            drawn, report = self._sample_chunk(logits[rows], sequences[rows], count)
            tokens.append(drawn.double())
            reports.append(report.flatten())
        numbers = torch.cat([*tokens, *reports]).tolist()
        return _collect(sequences, numbers, width=1 + 2 * count)

    def _sample_chunk(
        self, logits: torch.Tensor, sequences: list[Sequence], count: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = self._draw.draw(adjusted(logits, sequences, self._eos_token_ids), sequences)
        if all(each.sampling.logprobs is None for each in sequences):
            return tokens, tokens.new_empty(0, dtype=torch.float64)
        return tokens, measure(logits, tokens, sequences, count=count)


def _is_copied(sequence: Sequence) -> bool:
    return sequence.sampling.logprobs is not None or needs_adjusting(sequence)


def _chunks(copied: Many[bool]) -> Iterator[slice]:
    """Rows that are sampled together: CHUNK_ROWS, or all that follow without a copied one."""
    first = 0
    for start in range(0, len(copied), CHUNK_ROWS):
        if any(copied[start : start + CHUNK_ROWS]):
            if first < start:
                yield slice(first, start)
            first = start + CHUNK_ROWS
            yield slice(start, first)
    if first < len(copied):
        yield slice(first, len(copied))


def _collect(
    sequences: list[Sequence], numbers: list[float], *, width: int
) -> dict[str, SampledToken]:
    """All tokens come first, then `width` numbers for each row that asked for them."""
    sampled: dict[str, SampledToken] = {}
    place = len(sequences)
    for sequence, token in zip(sequences, numbers[:place], strict=True):
        token_id, asked, logprobs = int(token), sequence.sampling.logprobs, None
        if asked is not None:
            logprobs = describe(token_id, asked, numbers[place : place + width])
            place += width
        broken = token_id == BROKEN_ROW
        name = sequence.request_id
        sampled[name] = (
            SampledToken(0, error=NOT_FINITE) if broken else SampledToken(token_id, logprobs)
        )
    return sampled
