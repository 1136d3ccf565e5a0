"""Executor: what runs one scheduled step, and the two messages it exchanges with the scheduler."""

from array import array
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
class StepInputs:
    """What the model needs of a step, as plain numbers; one entry per sequence but `token_ids`."""

    token_ids: list[int]  # of all sequences, one behind the other
    num_computed: list[int]  # tokens that are in the cache before the step
    num_tokens: list[int]  # tokens that the step computes
    block_tables: "list[array[int]]"
    rows: list[int]  # places among `token_ids` from which a token is sampled


def describe_step(scheduled: tuple[ScheduledSequence, ...]) -> StepInputs:
    """The inputs of a scheduled step; the block tables are the sequences' own, not copies."""
    inputs = StepInputs([], [], [], [], [])
    for item in scheduled:
        start = item.sequence.num_computed_tokens
        inputs.token_ids.extend(item.sequence.token_ids[start : start + item.num_tokens])
        inputs.num_computed.append(start)
        inputs.num_tokens.append(item.num_tokens)
        inputs.block_tables.append(item.sequence.block_table)
        if item.needs_token:
            inputs.rows.append(len(inputs.token_ids) - 1)
    return inputs


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

    def stop(self) -> None:
        """Let other processes that compute a part of the model end; any thread may call it."""

    def close(self) -> None:
        """Stop them and wait until they are gone."""
