"""Adjust: what requests change in their logits before a token is chosen.

In the order that users of the field expect: min_tokens and logit_bias, repetition_penalty, then
presence_penalty and frequency_penalty. All rows of a chunk are changed together.
"""

from array import array
from collections import Counter
from collections.abc import Iterable
from collections.abc import Sequence as Many
from dataclasses import dataclass, field
from itertools import repeat

import torch

from pagefleet_engine.sampling.transfer import to_device
from pagefleet_engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class _Edits:
    """Places in a chunk of logits that is laid out flat, and a number for each."""

    places: "array[int]" = field(default_factory=lambda: array("q"))
    numbers: "array[float]" = field(default_factory=lambda: array("f"))

    def add(self, first: int, token_ids: Iterable[int], numbers: Iterable[float]) -> None:
        """`first` is the place of the row's first token."""
        self.places.extend(map(first.__add__, token_ids))
        self.numbers.extend(numbers)

    def to(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        places = torch.frombuffer(self.places, dtype=torch.int64)
        numbers = torch.frombuffer(self.numbers, dtype=torch.float32)
        return to_device(places, device), to_device(numbers, device)


def needs_adjusting(sequence: Sequence) -> bool:
    sampling = sequence.sampling
    return (
        bool(sampling.logit_bias)
        or sampling.repetition_penalty != 1.0
        or sampling.presence_penalty != 0.0
        or sampling.frequency_penalty != 0.0
        or sequence.num_output_tokens < sampling.min_tokens
    )


def adjusted(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    sequences: Many[Sequence],
    eos_token_ids: frozenset[int],
) -> torch.Tensor:
    """A changed copy in float32; the logits themselves where no row asks for a change.

    What was not finite stays so. Beside the copy it takes 25 bytes per distinct token that a row
    with a penalty has seen.
    """
    if not any(map(needs_adjusting, sequences)):
        return logits
    shifts, scales, penalties = _Edits(), _Edits(), _Edits()
    ends = frozenset(each for each in eos_token_ids if each < logits.shape[1])
    for row, sequence in enumerate(sequences):
        first = row * logits.shape[1]
        _shift(shifts, first, sequence, ends)
        _scale(scales, first, sequence)
        _penalize(penalties, first, sequence)
    changed = logits.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    flat = changed.view(-1)
    if shifts.places:
        flat.index_add_(0, *shifts.to(flat.device))
    if scales.places:
        _divide(flat, *scales.to(flat.device))
    if penalties.places:
        flat.index_add_(0, *penalties.to(flat.device))
    return changed


def _shift(edits: _Edits, first: int, sequence: Sequence, eos_token_ids: frozenset[int]) -> None:
    sampling = sequence.sampling
    if sequence.num_output_tokens < sampling.min_tokens:
        ends = eos_token_ids.union(sampling.stop_token_ids)
        edits.add(first, ends, repeat(float("-inf"), len(ends)))
    edits.add(first, sampling.logit_bias, sampling.logit_bias.values())


def _scale(edits: _Edits, first: int, sequence: Sequence) -> None:
    """All tokens seen so far count, the prompt's included."""
    penalty = sequence.sampling.repetition_penalty
    if penalty != 1.0:
        seen = set(sequence.token_ids)
        edits.add(first, seen, repeat(penalty, len(seen)))


def _penalize(edits: _Edits, first: int, sequence: Sequence) -> None:
    sampling = sequence.sampling
    once, each = sampling.presence_penalty, sampling.frequency_penalty
    if once != 0.0 or each != 0.0:
        counts = Counter(sequence.output_token_ids)
        edits.add(first, counts, (-once - each * count for count in counts.values()))


def _divide(flat: torch.Tensor, places: torch.Tensor, penalties: torch.Tensor) -> None:
    """Shrink logits towards minus infinity."""
    seen = flat[places]
    flat[places] = torch.where(seen > 0, seen / penalties, seen * penalties)
