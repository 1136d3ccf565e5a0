"""EngineSample: what one engine pod reported at one moment, and arithmetic on its counters."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Histogram:
    """Cumulative bucket counts; `bounds` ascend and end with +Inf. Empty means never reported."""

    bounds: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()

    @property
    def total(self) -> float:
        return self.counts[-1] if self.counts else 0.0

    def since(self, earlier: Histogram) -> Histogram:
        if earlier.bounds != self.bounds:
            return self
        pairs = zip(self.counts, earlier.counts, strict=True)
        return Histogram(self.bounds, tuple(max(0.0, new - old) for new, old in pairs))

    def plus(self, other: Histogram) -> Histogram:
        if not self.bounds or not other.bounds:
            return self if self.bounds else other
        if other.bounds != self.bounds:  # two engine versions: keep the better filled one
            return max(self, other, key=lambda histogram: histogram.total)
        pairs = zip(self.counts, other.counts, strict=True)
        return Histogram(self.bounds, tuple(a + b for a, b in pairs))

    def scaled(self, share: float) -> Histogram:
        return Histogram(self.bounds, tuple(count * share for count in self.counts))

    def quantile(self, q: float) -> float | None:
        """The value below which `q` of the observations lie; None without observations."""
        if self.total <= 0:
            return None
        rank = q * self.total
        low, seen = 0.0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            if count >= rank:
                if math.isinf(bound):
                    return low
                return low + (bound - low) * (rank - seen) / max(count - seen, 1e-12)
            low, seen = bound, count
        return low


@dataclass(frozen=True, slots=True)
class Counters:
    """Everything of an engine that only grows. As a difference of two: a flow between them."""

    arrivals: float = 0.0
    finished: float = 0.0
    prompt_tokens_computed: float = 0.0
    generation_tokens: float = 0.0
    kv_token_seconds: float = 0.0
    preemptions: float = 0.0
    time_to_first_token: Histogram = field(default_factory=Histogram)
    inter_token_latency: Histogram = field(default_factory=Histogram)

    def since(self, earlier: Counters) -> Counters:
        """The growth since `earlier`; after a restart of the process, all there is."""
        old = Counters() if self._restarted_after(earlier) else earlier
        return Counters(
            # Sampled from two gauges and a counter, so it may wobble by one: never negative.
            arrivals=max(0.0, self.arrivals - old.arrivals),
            finished=self.finished - old.finished,
            prompt_tokens_computed=self.prompt_tokens_computed - old.prompt_tokens_computed,
            generation_tokens=self.generation_tokens - old.generation_tokens,
            kv_token_seconds=self.kv_token_seconds - old.kv_token_seconds,
            preemptions=self.preemptions - old.preemptions,
            time_to_first_token=self.time_to_first_token.since(old.time_to_first_token),
            inter_token_latency=self.inter_token_latency.since(old.inter_token_latency),
        )

    def plus(self, other: Counters) -> Counters:
        return Counters(
            arrivals=self.arrivals + other.arrivals,
            finished=self.finished + other.finished,
            prompt_tokens_computed=self.prompt_tokens_computed + other.prompt_tokens_computed,
            generation_tokens=self.generation_tokens + other.generation_tokens,
            kv_token_seconds=self.kv_token_seconds + other.kv_token_seconds,
            preemptions=self.preemptions + other.preemptions,
            time_to_first_token=self.time_to_first_token.plus(other.time_to_first_token),
            inter_token_latency=self.inter_token_latency.plus(other.inter_token_latency),
        )

    def scaled(self, share: float) -> Counters:
        return Counters(
            arrivals=self.arrivals * share,
            finished=self.finished * share,
            prompt_tokens_computed=self.prompt_tokens_computed * share,
            generation_tokens=self.generation_tokens * share,
            kv_token_seconds=self.kv_token_seconds * share,
            preemptions=self.preemptions * share,
            time_to_first_token=self.time_to_first_token.scaled(share),
            inter_token_latency=self.inter_token_latency.scaled(share),
        )

    def _restarted_after(self, earlier: Counters) -> bool:
        return (
            self.finished < earlier.finished
            or self.prompt_tokens_computed < earlier.prompt_tokens_computed
            or self.generation_tokens < earlier.generation_tokens
            or self.kv_token_seconds < earlier.kv_token_seconds
            or self.preemptions < earlier.preemptions
        )


@dataclass(frozen=True, slots=True)
class EngineSample:
    """One pod's metrics. `scraped_at` is the reader's clock; `last_step_at` the engine's."""

    pod: str
    scraped_at: float
    running: int
    waiting: int
    waiting_prompt_tokens: float
    oldest_waiting_seconds: float
    kv_used_tokens: float
    kv_capacity_tokens: float
    counters: Counters
    prefill_tokens_per_second: float | None = None  # None: not measured yet
    last_step_at: float | None = None  # None: not exported

    @property
    def kv_utilization(self) -> float:
        return self.kv_used_tokens / self.kv_capacity_tokens if self.kv_capacity_tokens else 0.0
