"""Metrics: every series that the engine exports, collected at scrape time from its live state."""

import time
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pagefleet_engine.engine_state import EngineView
from pagefleet_engine.lifecycle import Lifecycle, ServerState
from pagefleet_engine.request import EngineLedger, EngineStats
from pagefleet_engine.request_metrics import Histogram, RequestMetrics

GAUGES: Mapping[str, tuple[str, Callable[[EngineStats], float]]] = {
    "pagefleet_requests_running": ("Requests in the running batch", lambda s: s.num_running),
    "pagefleet_requests_waiting": ("Requests in the queue", lambda s: s.num_waiting),
    "pagefleet_waiting_prompt_tokens": (
        "Prompt tokens of the waiting requests",
        lambda s: s.waiting_prompt_tokens,
    ),
    "pagefleet_kv_cache_usage_ratio": (
        "Share of the KV blocks that requests refer to",
        lambda s: s.kv_cache_usage_ratio,
    ),
    "pagefleet_kv_cache_capacity_tokens": (
        "Tokens that the KV cache holds",
        lambda s: s.kv_capacity_tokens,
    ),
    "pagefleet_kv_cache_used_tokens": (
        "Token slots in KV blocks that requests refer to",
        lambda s: s.kv_used_tokens,
    ),
    "pagefleet_prefill_capacity_tokens_per_second": (
        "Prompt tokens per second of steps with a full token budget",
        lambda s: s.prefill_capacity_tokens_per_second,
    ),
    "pagefleet_engine_last_step_timestamp_seconds": (
        "When the last step ended, 0 before the first",
        lambda s: s.last_step_timestamp,
    ),
    "vllm:num_requests_running": ("Requests in the running batch", lambda s: s.num_running),
    "vllm:num_requests_waiting": ("Requests in the queue", lambda s: s.num_waiting),
    "vllm:kv_cache_usage_perc": (
        "Share of the KV blocks in use, 0 to 1",
        lambda s: s.kv_cache_usage_ratio,
    ),
}

COUNTERS: Mapping[str, tuple[str, Callable[[EngineStats], float]]] = {
    "pagefleet_kv_cache_token_seconds": (
        "KV tokens in use, integrated over time",
        lambda s: s.kv_cache_token_seconds,
    ),
    "pagefleet_prompt_tokens": ("Prompt tokens of admitted requests", lambda s: s.prompt_tokens),
    "pagefleet_prompt_tokens_computed": (
        "Prompt tokens that no prefix cache hit saved",
        lambda s: s.prompt_tokens_computed,
    ),
    "pagefleet_generation_tokens": ("Tokens generated", lambda s: s.generation_tokens),
    "pagefleet_prefix_cache_queries": (
        "Prompt tokens looked up in the prefix cache",
        lambda s: s.prefix_cache_queries,
    ),
    "pagefleet_prefix_cache_hits": (
        "Prompt tokens found in the prefix cache",
        lambda s: s.prefix_cache_hits,
    ),
    "vllm:num_preemptions": (
        "Preemptions",
        lambda s: s.preemptions_recompute + s.preemptions_swap,
    ),
    "vllm:prompt_tokens": ("Prompt tokens of admitted requests", lambda s: s.prompt_tokens),
    "vllm:generation_tokens": ("Tokens generated", lambda s: s.generation_tokens),
}

HISTOGRAMS: Mapping[str, tuple[str, Callable[[RequestMetrics], Histogram]]] = {
    "pagefleet_time_to_first_token_seconds": (
        "From arrival to the first token",
        lambda m: m.time_to_first_token,
    ),
    "pagefleet_inter_token_latency_seconds": (
        "Between two tokens of one request",
        lambda m: m.inter_token_latency,
    ),
    "pagefleet_request_queue_time_seconds": (
        "From arrival to the first scheduling",
        lambda m: m.queue_time,
    ),
    "pagefleet_request_duration_seconds": ("From arrival to the end", lambda m: m.duration),
    "vllm:time_to_first_token_seconds": (
        "From arrival to the first token",
        lambda m: m.time_to_first_token,
    ),
    "vllm:inter_token_latency_seconds": (
        "Between two tokens of one request",
        lambda m: m.inter_token_latency,
    ),
}


class EngineCollector(Collector):
    """Reads the engine's latest view on every scrape, so that no gauge can go stale.

    Series that come from the core are absent until the model is loaded: no metric is not a zero.
    """

    def __init__(
        self,
        *,
        model_name: str,
        requests: RequestMetrics,
        lifecycle: Lifecycle,
        view: Callable[[], EngineView | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model_name = model_name
        self._requests = requests
        self._lifecycle = lifecycle
        self._view = view
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        yield self._engine_state()
        yield self._requests_finished()
        for name, (text, histogram) in HISTOGRAMS.items():
            yield self._histogram(name, text, histogram(self._requests))
        if (view := self._view()) is not None:
            yield from self._from_stats(view)
            yield from self._from_ledger(view.ledger)

    def _engine_state(self) -> Metric:
        family = GaugeMetricFamily(
            "pagefleet_engine_state", "1 for the current state", labels=["model_name", "state"]
        )
        for state in ServerState:
            family.add_metric([self._model_name, state], float(state is self._lifecycle.state))
        return family

    def _requests_finished(self) -> Metric:
        family = CounterMetricFamily(
            "pagefleet_requests_finished",
            "Accepted requests that ended, by reason",
            labels=["model_name", "reason"],
        )
        for reason, count in self._requests.finished.items():
            family.add_metric([self._model_name, reason], count)
        return family

    def _histogram(self, name: str, text: str, histogram: Histogram) -> Metric:
        family = HistogramMetricFamily(name, text, labels=["model_name"])
        family.add_metric([self._model_name], histogram.buckets(), histogram.total)
        return family

    def _from_stats(self, view: EngineView) -> Iterator[Metric]:
        stats = view.stats
        for name, (text, read) in GAUGES.items():
            yield self._gauge(name, text, read(stats))
        yield self._oldest_waiting_age(view)
        yield self._kv_cache_blocks(stats)
        for name, (text, read) in COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=["model_name"])
            counter.add_metric([self._model_name], read(stats))
            yield counter
        yield self._preemptions(stats)

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, text, labels=["model_name"])
        family.add_metric([self._model_name], value)
        return family

    def _oldest_waiting_age(self, view: EngineView) -> Metric:
        since_view = self._clock() - view.received
        age = view.stats.oldest_waiting_age_seconds + since_view
        return self._gauge(
            "pagefleet_oldest_waiting_age_seconds",
            "Age of the oldest request in the queue",
            age if view.stats.num_waiting else 0.0,
        )

    def _kv_cache_blocks(self, stats: EngineStats) -> Metric:
        family = GaugeMetricFamily(
            "pagefleet_kv_cache_blocks",
            "KV blocks by state: used by requests, cached for reuse, free",
            labels=["model_name", "state"],
        )
        for state, count in (
            ("used", stats.blocks_used),
            ("cached", stats.blocks_cached),
            ("free", stats.blocks_free),
        ):
            family.add_metric([self._model_name, state], count)
        return family

    def _preemptions(self, stats: EngineStats) -> Metric:
        family = CounterMetricFamily(
            "pagefleet_preemptions",
            "Requests that lost their KV blocks to others",
            labels=["model_name", "mode"],
        )
        family.add_metric([self._model_name, "recompute"], stats.preemptions_recompute)
        family.add_metric([self._model_name, "swap"], stats.preemptions_swap)
        return family

    def _from_ledger(self, ledger: EngineLedger) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "pagefleet_memory_ledger_bytes",
            "Terms of the memory ledger, as predicted and as measured",
            labels=["model_name", "term", "source"],
        )
        for term in ledger.terms:
            family.add_metric([self._model_name, term.name, "predicted"], term.predicted_bytes)
            if term.measured_bytes is not None:
                family.add_metric([self._model_name, term.name, "measured"], term.measured_bytes)
        yield family
        info = GaugeMetricFamily(
            "vllm:cache_config_info",
            "The KV cache's configuration, as labels",
            labels=["model_name", "block_size", "num_gpu_blocks"],
        )
        info.add_metric([self._model_name, str(ledger.block_size), str(ledger.num_blocks)], 1)
        yield info
