"""Scheduler: which tokens each step computes, and what becomes of the requests.

One loop, without phases: a step gives sequences some tokens so that the computed ones catch up
with the known ones; prefill, decode and recomputation are the same thing. Running sequences come
first, then waiting ones, in one order (priority, arrival). Preemption takes from the end of
that order, so the first running sequence always goes on and every request ends.
"""

from bisect import insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pagefleet_engine.executor import (
    ModelRunnerOutput,
    SampledToken,
    ScheduledSequence,
    SchedulerOutput,
)
from pagefleet_engine.kv_cache.block_manager import BlockManager
from pagefleet_engine.request import EngineOutput, EngineRequest, FinishReason
from pagefleet_engine.sequence import Sequence, SequenceStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """What bounds one step and one sequence."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int


@dataclass(slots=True)
class SchedulerTotals:
    """Counts since start."""

    preemptions: int = 0
    prompt_tokens: int = 0
    prompt_tokens_computed: int = 0
    generation_tokens: int = 0
    finished: dict[FinishReason, int] = field(
        default_factory=lambda: dict.fromkeys(FinishReason, 0)
    )


def _order(sequence: Sequence) -> tuple[int, int]:
    return sequence.order


class Scheduler:
    """Owns every sequence from `add` to its last output."""

    def __init__(
        self,
        *,
        limits: SchedulerLimits,
        block_manager: BlockManager,
        eos_token_ids: frozenset[int],
        by_priority: bool,
        clock: Callable[[], float],
    ) -> None:
        self.limits = limits
        self.block_manager = block_manager
        self.totals = SchedulerTotals()
        self.waiting: list[Sequence] = []  # both lists are sorted by `order`
        self.running: list[Sequence] = []
        self._sequences: dict[str, Sequence] = {}
        self._eos_token_ids = eos_token_ids
        self._by_priority = by_priority
        self._clock = clock
        self._num_arrived = 0

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._sequences

    @property
    def has_work(self) -> bool:
        return bool(self._sequences)

    def add(self, request: EngineRequest) -> None:
        """Queue a request that the admission limits accepted."""
        sequence = Sequence(
            request,
            arrival_index=self._num_arrived,
            max_tokens=self._most_tokens(request),
            by_priority=self._by_priority,
        )
        self._num_arrived += 1
        self._sequences[request.request_id] = sequence
        insort(self.waiting, sequence, key=_order)

    def _most_tokens(self, request: EngineRequest) -> int:
        """How many tokens the request may generate; the last one needs no place in the cache."""
        prompt = len(request.prompt_token_ids)
        room = min(self.limits.max_model_len, self.block_manager.capacity_tokens + 1) - prompt
        wanted = request.sampling.max_tokens
        return room if wanted is None else min(wanted, room)

    def abort(self, request_ids: Iterable[str]) -> list[EngineOutput]:
        """End requests in whatever state they are; unknown ids are ignored."""
        known = [self._sequences[name] for name in request_ids if name in self._sequences]
        return [self._finish(sequence, FinishReason.ABORT) for sequence in dict.fromkeys(known)]

    def schedule(self) -> SchedulerOutput:
        """Decide the next step."""
        self._make_room_for_urgent()
        scheduled: list[ScheduledSequence] = []
        preemptions = self.totals.preemptions
        budget = self._schedule_running(scheduled, self.limits.max_num_batched_tokens)
        if self.totals.preemptions == preemptions:
            budget = self._schedule_waiting(scheduled, budget)
        return SchedulerOutput(
            scheduled=tuple(scheduled), num_tokens=self.limits.max_num_batched_tokens - budget
        )

    def _schedule_running(self, scheduled: list[ScheduledSequence], budget: int) -> int:
        index = 0
        while index < len(self.running) and budget > 0:
            sequence = self.running[index]
            if not self._grow_or_preempt(sequence):
                break
            # A long prompt leaves one token to each sequence behind it, so decodes never starve.
            behind = len(self.running) - index - 1
            budget -= self._schedule_one(scheduled, sequence, max(1, budget - behind))
            index += 1
        return budget

    def _schedule_waiting(self, scheduled: list[ScheduledSequence], budget: int) -> int:
        while self.waiting and budget > 0 and len(self.running) < self.limits.max_num_seqs:
            sequence = self.waiting[0]
            if not self.block_manager.allocate(sequence, others_run=bool(self.running)):
                break  # the head waits for room; nobody overtakes it
            self.waiting.pop(0)
            self._start(sequence)
            budget -= self._schedule_one(scheduled, sequence, budget)
        return budget

    def _schedule_one(
        self, scheduled: list[ScheduledSequence], sequence: Sequence, most: int
    ) -> int:
        num_tokens = min(sequence.num_tokens - sequence.num_computed_tokens, most)
        self.block_manager.register_computed(sequence, sequence.num_computed_tokens + num_tokens)
        scheduled.append(ScheduledSequence(sequence, num_tokens))
        return num_tokens

    def _start(self, sequence: Sequence) -> None:
        if sequence.first_scheduled_time is None:
            sequence.first_scheduled_time = self._clock()
            sequence.num_cached_tokens = sequence.num_computed_tokens
            self.totals.prompt_tokens += sequence.num_prompt_tokens
        sequence.status = SequenceStatus.RUNNING
        insort(self.running, sequence, key=_order)

    def _grow_or_preempt(self, sequence: Sequence) -> bool:
        """Find room for the sequence's next token; False if it had to give way itself."""
        while not self.block_manager.grow(sequence):
            victim = self.running[-1]
            self._preempt(victim)
            if victim is sequence:
                assert self.running, "the first running sequence must always find room"
                return False
        return True

    def _preempt(self, victim: Sequence) -> None:
        """Take a running sequence's blocks; it waits again, before everybody who came later."""
        self.running.remove(victim)
        self.block_manager.free(victim)
        victim.status = SequenceStatus.PREEMPTED
        victim.num_preemptions += 1
        self.totals.preemptions += 1
        insort(self.waiting, victim, key=_order)

    def _make_room_for_urgent(self) -> None:
        """Preempt sequences of strictly lower priority if the most urgent waiting one needs it."""
        if not self._by_priority or not self.waiting:
            return
        urgent = self.waiting[0]
        lower = [each for each in self.running if each.order[0] > urgent.order[0]]
        freed = sum(len(each.block_table) for each in lower)
        if not self.block_manager.can_allocate(urgent, others_run=True, freed=freed):
            return
        while lower and not self._has_room(urgent):
            self._preempt(lower.pop())

    def _has_room(self, sequence: Sequence) -> bool:
        return len(self.running) < self.limits.max_num_seqs and self.block_manager.can_allocate(
            sequence, others_run=bool(self.running)
        )

    def update(self, output: SchedulerOutput, result: ModelRunnerOutput) -> list[EngineOutput]:
        """Advance the scheduled sequences and take in the sampled tokens."""
        outputs = []
        for item in output.scheduled:
            sequence = item.sequence
            sampled = result.sampled.get(sequence.request_id)
            self._advance(sequence, item.num_tokens)
            if sampled is not None:
                outputs.append(self._take(sequence, sampled))
        return outputs

    def _advance(self, sequence: Sequence, num_tokens: int) -> None:
        start = sequence.num_computed_tokens
        sequence.num_computed_tokens = start + num_tokens
        prompt_part = min(num_tokens, sequence.num_prompt_tokens - start)
        self.totals.prompt_tokens_computed += max(0, prompt_part)

    def _take(self, sequence: Sequence, sampled: SampledToken) -> EngineOutput:
        if sampled.error is not None:
            return self._finish(sequence, FinishReason.ERROR, error=sampled.error)
        sequence.token_ids.append(sampled.token_id)
        self.totals.generation_tokens += 1
        reason = self._finish_reason(sequence, sampled.token_id)
        if reason is None:
            return self._output(sequence, sampled)
        return self._finish(sequence, reason, sampled=sampled)

    def _finish_reason(self, sequence: Sequence, token_id: int) -> FinishReason | None:
        sampling = sequence.sampling
        if sequence.num_output_tokens >= sampling.min_tokens:
            ends = token_id in self._eos_token_ids and not sampling.ignore_eos
            if ends or token_id in sampling.stop_token_ids:
                return FinishReason.STOP
        if sequence.num_output_tokens >= sequence.max_tokens:
            return FinishReason.LENGTH
        return None

    def fail(self, output: SchedulerOutput, message: str) -> list[EngineOutput]:
        """End every sequence of a step that broke."""
        return [
            self._finish(item.sequence, FinishReason.ERROR, error=message)
            for item in output.scheduled
        ]

    def _finish(
        self,
        sequence: Sequence,
        reason: FinishReason,
        *,
        sampled: SampledToken | None = None,
        error: str | None = None,
    ) -> EngineOutput:
        if sequence.status is SequenceStatus.RUNNING:
            self.running.remove(sequence)
        else:
            self.waiting.remove(sequence)
        if reason is FinishReason.ERROR:
            self.block_manager.free_untrusted(sequence)
        else:
            self.block_manager.free(sequence)
        sequence.status = SequenceStatus.FINISHED
        del self._sequences[sequence.request_id]
        self.totals.finished[reason] += 1
        return self._output(sequence, sampled, reason=reason, error=error)

    def _output(
        self,
        sequence: Sequence,
        sampled: SampledToken | None,
        *,
        reason: FinishReason | None = None,
        error: str | None = None,
    ) -> EngineOutput:
        token_id = None if sampled is None else sampled.token_id
        logprobs = None if sampled is None else sampled.logprobs
        return EngineOutput(
            request_id=sequence.request_id,
            new_token_ids=() if token_id is None else (token_id,),
            logprobs=None if logprobs is None else (logprobs,),
            finish_reason=reason,
            stop_token_id=token_id if reason is FinishReason.STOP else None,
            error=error,
            num_cached_tokens=sequence.num_cached_tokens,
            queue_seconds=sequence.queue_seconds,
        )

    def check_integrity(self) -> None:
        """Raise AssertionError unless every reference belongs to exactly one block table."""
        self.block_manager.pool.check_integrity()
        held = {block for each in self.running for block in each.block_table}
        assert len(held) == self.block_manager.pool.counts().used, "a block leaked"
        assert all(not each.block_table for each in self.waiting), "a waiting sequence holds blocks"
        assert len(self._sequences) == len(self.waiting) + len(self.running), "a sequence is lost"
