"""One engine: continuous batching, chunked prefill, KV admission, preemption by recompute."""

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.autoscaling_sim.requests import Request
from pagefleet_operator.autoscaling import Counters, EngineSample, Histogram

TTFT_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, float("inf"))


@dataclass(frozen=True, slots=True)
class EngineModel:
    """Seconds of a step = base + per_sequence*batch + per_prefill_token*chunk + per_kv_token*KV.

    The defaults resemble an 8-billion-parameter model in bfloat16 on a GPU with 24 GB.
    """

    kv_tokens: int = 34_000
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 512
    base: float = 0.055
    per_sequence: float = 0.0002
    per_prefill_token: float = 0.00022
    per_kv_token: float = 4.4e-7

    @property
    def prefill_tokens_per_second(self) -> float:
        tokens = self.max_num_batched_tokens
        return tokens / (self.base + tokens * self.per_prefill_token)


@dataclass(slots=True, eq=False)
class Sequence:
    request: Request
    to_prefill: int
    generated: int = 0
    first_token_at: float | None = None
    finished_at: float | None = None
    joined_at_step: int = 0  # step in which the last prefill ended
    generated_before: int = 0

    @property
    def seconds_per_token(self) -> float:
        assert self.first_token_at is not None and self.finished_at is not None
        rest = self.request.output_tokens - 1
        return (self.finished_at - self.first_token_at) / rest if rest else 0.0


@dataclass(slots=True)
class Replica:
    model: EngineModel
    clock: float
    waiting: deque[Sequence] = field(default_factory=deque)
    prefilling: deque[Sequence] = field(default_factory=deque)
    running: dict[Sequence, None] = field(default_factory=dict)  # in order of admission
    finishing: list[tuple[int, int, Sequence]] = field(default_factory=list)  # heap by step
    kv_used: int = 0
    queued_tokens: int = 0
    steps: int = 0
    serial: int = 0
    finished: int = 0
    preemptions: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    kv_token_seconds: float = 0.0
    ttft_counts: list[int] = field(default_factory=lambda: [0] * len(TTFT_BOUNDS))

    @property
    def in_flight(self) -> int:
        return len(self.waiting) + len(self.prefilling) + len(self.running)

    @property
    def committed_tokens(self) -> int:
        """What a router minimises: tokens pinned, and those of the queue."""
        return self.kv_used + self.queued_tokens

    def submit(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)
        self.queued_tokens += sequence.to_prefill

    def advance(self, until: float) -> Iterator[Sequence]:
        """Step until the clock reaches `until`; yields the sequences that finish."""
        while self.clock < until:
            if not self.prefilling and not self.running:
                if not self.waiting:
                    self.clock = until
                    return
                self.clock = max(self.clock, self.waiting[0].request.arrival)
                if self.clock >= until:
                    return
            self._make_room()
            chunk = self._prefill_chunk()
            batch = len(self.running)
            steps = self._plain_steps(until, batch) if chunk == 0 else 1
            self._run(batch, chunk, steps)
            yield from self._finish()

    def sample(self, pod: str, now: float) -> EngineSample:
        oldest = self.waiting[0].request.arrival if self.waiting else now
        return EngineSample(
            pod=pod,
            scraped_at=now,
            running=len(self.running) + len(self.prefilling),
            waiting=len(self.waiting),
            waiting_prompt_tokens=self.queued_tokens,
            oldest_waiting_seconds=max(0.0, now - oldest),
            kv_used_tokens=self.kv_used,
            kv_capacity_tokens=self.model.kv_tokens,
            counters=Counters(
                arrivals=self.finished + self.in_flight,
                finished=self.finished,
                prompt_tokens_computed=self.prompt_tokens,
                generation_tokens=self.generation_tokens,
                kv_token_seconds=self.kv_token_seconds,
                preemptions=self.preemptions,
                time_to_first_token=Histogram(TTFT_BOUNDS, self._cumulative_ttft()),
            ),
            prefill_tokens_per_second=self.model.prefill_tokens_per_second,
            last_step_at=now,
        )

    def _make_room(self) -> None:
        """Preempt the newest while the next token of each sequence does not fit."""
        while self.kv_used + len(self.running) > self.model.kv_tokens and len(self.running) > 1:
            sequence = next(reversed(self.running))
            del self.running[sequence]
            sequence.generated = self._generated(sequence)
            tokens = sequence.request.prompt_tokens + sequence.generated
            self.kv_used -= tokens
            sequence.to_prefill = tokens
            self.waiting.appendleft(sequence)
            self.queued_tokens += tokens
            self.preemptions += 1

    def _prefill_chunk(self) -> int:
        """Spend the step's token budget on prompts, admitting as long as they fit."""
        budget = self.model.max_num_batched_tokens - len(self.running)
        chunk = 0
        while chunk < budget:
            sequence = self.prefilling[0] if self.prefilling else self._admit()
            if sequence is None:
                break
            part = min(budget - chunk, sequence.to_prefill)
            sequence.to_prefill -= part
            chunk += part
            if sequence.to_prefill == 0:
                self.prefilling.popleft()
                sequence.joined_at_step = self.steps + 1
                sequence.generated_before = sequence.generated
                self.running[sequence] = None
                left = sequence.request.output_tokens - sequence.generated
                self.serial += 1
                heapq.heappush(self.finishing, (self.steps + left, self.serial, sequence))
        return chunk

    def _admit(self) -> Sequence | None:
        if not self.waiting or self.waiting[0].request.arrival > self.clock:
            return None
        full = len(self.running) + len(self.prefilling) >= self.model.max_num_seqs
        if full or self.kv_used + self.waiting[0].to_prefill > self.model.kv_tokens:
            return None
        sequence = self.waiting.popleft()
        self.queued_tokens -= sequence.to_prefill
        self.kv_used += sequence.to_prefill
        self.prefilling.append(sequence)
        return sequence

    def _plain_steps(self, until: float, batch: int) -> int:
        """How many steps without a prompt, an end or a preemption lie ahead."""
        if self.waiting or not batch:
            return 1
        to_end = self.finishing[0][0] - self.steps
        to_full = (self.model.kv_tokens - self.kv_used) // batch
        to_time = int((until - self.clock) / self._step_seconds(batch, 0)) + 1
        return max(1, min(to_end, to_full, to_time))

    def _run(self, batch: int, chunk: int, steps: int) -> None:
        """`batch` counts the sequences before this step's prompts joined them."""
        decoding = len(self.running) if chunk else batch
        for _ in range(steps):
            seconds = self._step_seconds(batch, chunk)
            self.kv_token_seconds += self.kv_used * seconds
            self.clock += seconds
            self.kv_used += decoding
        self.steps += steps
        self.prompt_tokens += chunk
        self.generation_tokens += decoding * steps
        if chunk:
            self._mark_first_tokens()

    def _mark_first_tokens(self) -> None:
        for sequence in reversed(self.running):
            if sequence.joined_at_step != self.steps:
                break
            if sequence.first_token_at is None:
                sequence.first_token_at = self.clock
                waited = self.clock - sequence.request.arrival
                self.ttft_counts[bisect_left(TTFT_BOUNDS, waited)] += 1

    def _finish(self) -> Iterator[Sequence]:
        while self.finishing and self.finishing[0][0] <= self.steps:
            due, _, sequence = heapq.heappop(self.finishing)
            if sequence not in self.running or due != self._due(sequence):
                continue  # preempted since
            del self.running[sequence]
            self.kv_used -= sequence.request.prompt_tokens + sequence.request.output_tokens
            sequence.finished_at = self.clock
            self.finished += 1
            yield sequence

    def _due(self, sequence: Sequence) -> int:
        left = sequence.request.output_tokens - sequence.generated_before
        return sequence.joined_at_step - 1 + left

    def _generated(self, sequence: Sequence) -> int:
        return sequence.generated_before + self.steps - sequence.joined_at_step + 1

    def _step_seconds(self, batch: int, chunk: int) -> float:
        model = self.model
        return (
            model.base
            + model.per_sequence * batch
            + model.per_prefill_token * chunk
            + model.per_kv_token * self.kv_used
        )

    def _cumulative_ttft(self) -> tuple[float, ...]:
        total, counts = 0, []
        for count in self.ttft_counts:
            total += count
            counts.append(float(total))
        return tuple(counts)
