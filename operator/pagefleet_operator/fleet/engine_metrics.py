"""From an engine's Prometheus text to an EngineSample: the metric names the autoscaler reads."""

import math
from collections import defaultdict
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from pagefleet_operator.autoscaling.sample import Counters, EngineSample, Histogram

PREFIX = "pagefleet_"


class MetricsError(Exception):
    """A pod's metrics cannot be used: not readable, or something the law needs is absent."""


@dataclass(frozen=True, slots=True)
class _Series:
    """Values by sample name, summed over labels; buckets by family; names declared by TYPE."""

    values: dict[str, float]
    buckets: dict[str, dict[float, float]]
    declared: frozenset[str]

    def gauge(self, name: str) -> float:
        if PREFIX + name not in self.values:
            raise MetricsError(f"the engine reports no {PREFIX}{name}")
        return self.values[PREFIX + name]

    def optional_gauge(self, name: str) -> float | None:
        return self.values.get(PREFIX + name)

    def counter(self, name: str) -> float:
        """A counter whose labels have not been used yet is declared, without a value: zero."""
        full = PREFIX + name
        if full in self.values:
            return self.values[full]
        if full in self.declared or full.removesuffix("_total") in self.declared:
            return 0.0
        raise MetricsError(f"the engine reports no {full}")

    def histogram(self, name: str) -> Histogram:
        buckets = sorted(self.buckets.get(PREFIX + name, {}).items())
        return Histogram(
            bounds=tuple(bound for bound, _ in buckets), counts=tuple(count for _, count in buckets)
        )


def parse_metrics(text: str, *, pod: str, scraped_at: float) -> EngineSample:
    """Raise MetricsError rather than take an absent number for a zero."""
    series = _read(text)
    running, waiting = series.gauge("requests_running"), series.gauge("requests_waiting")
    return EngineSample(
        pod=pod,
        scraped_at=scraped_at,
        running=int(running),
        waiting=int(waiting),
        waiting_prompt_tokens=series.gauge("waiting_prompt_tokens"),
        oldest_waiting_seconds=series.gauge("oldest_waiting_age_seconds"),
        kv_used_tokens=series.gauge("kv_cache_used_tokens"),
        kv_capacity_tokens=series.gauge("kv_cache_capacity_tokens"),
        counters=_read_counters(series, in_system=running + waiting),
        # An engine that has not filled a step yet reports zero: not measured.
        prefill_tokens_per_second=series.optional_gauge("prefill_capacity_tokens_per_second")
        or None,
        last_step_at=series.optional_gauge("engine_last_step_timestamp_seconds") or None,
    )


def _read_counters(series: _Series, *, in_system: float) -> Counters:
    finished = series.counter("requests_finished_total")
    return Counters(
        arrivals=finished + in_system,
        finished=finished,
        prompt_tokens_computed=series.counter("prompt_tokens_computed_total"),
        generation_tokens=series.counter("generation_tokens_total"),
        kv_token_seconds=series.counter("kv_cache_token_seconds_total"),
        preemptions=series.counter("preemptions_total"),
        time_to_first_token=series.histogram("time_to_first_token_seconds"),
        inter_token_latency=series.histogram("inter_token_latency_seconds"),
    )


def _read(text: str) -> _Series:
    values: defaultdict[str, float] = defaultdict(float)
    buckets: defaultdict[str, dict[float, float]] = defaultdict(dict)
    declared = set()
    try:
        for family in text_string_to_metric_families(text):
            if not family.name.startswith(PREFIX):
                continue
            declared.add(family.name)
            for sample in family.samples:
                _check(sample.name, sample.value)
                if sample.name.endswith("_bucket"):
                    bound = float(sample.labels["le"])
                    known = buckets[family.name]
                    known[bound] = known.get(bound, 0.0) + sample.value
                else:
                    values[sample.name] += sample.value
    except (ValueError, KeyError, IndexError) as error:
        raise MetricsError(f"the engine's metrics are not Prometheus text: {error!r}") from error
    return _Series(dict(values), dict(buckets), frozenset(declared))


def _check(name: str, value: float) -> None:
    if not math.isfinite(value) or value < 0:
        raise MetricsError(f"{name} is {value}; expected a finite number from 0 up")
