"""Executor: what runs one scheduled step, and the two messages it exchanges with the scheduler."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pagefleet_engine.request import TokenLogprobs
from pagefleet_engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class ScheduledSequence:
    """One row of a step: compute `num_tokens` tokens from the sequence's first uncomputed one."""

    sequence: Sequence
    num_tokens: int

    @property
    def needs_token(self) -> bool:
        """Whether the step reaches the sequence's last token, so that one is sampled."""
        sequence = self.sequence
        return sequence.num_computed_tokens + self.num_tokens == len(sequence.token_ids)


@dataclass(frozen=True, slots=True)
class SchedulerOutput:
    """What one step computes; the sequences were not yet advanced."""

    scheduled: tuple[ScheduledSequence, ...]
    num_tokens: int


@dataclass(frozen=True, slots=True)
class SampledToken:
    """The next token of one sequence, or the reason why there is none."""

    token_id: int
    logprobs: TokenLogprobs | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ModelRunnerOutput:
    """Sampled tokens by request id, for the rows that needed one."""

    sampled: Mapping[str, SampledToken]


class Executor(Protocol):
    """Runs steps; the scheduler's half of the engine knows the model only through this."""

    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput: ...

    def forget(self, request_id: str) -> None:
        """Drop what is kept for a request that ended (its random generator)."""
