"""The operator reads what the engine exports: the two sides' metric names are one contract."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from pagefleet_engine.engine_state import EngineView
from pagefleet_engine.lifecycle import Lifecycle
from pagefleet_engine.metrics import EngineCollector
from pagefleet_engine.request import AdmissionLimits, EngineLedger, EngineStats, FinishReason
from pagefleet_engine.request_metrics import RequestMetrics
from pagefleet_operator.fleet.engine_metrics import MetricsError, parse_metrics

STATS = EngineStats(
    num_running=3,
    num_waiting=2,
    waiting_prompt_tokens=700,
    oldest_waiting_age_seconds=1.5,
    kv_capacity_tokens=16_384,
    kv_used_tokens=4_096,
    blocks_used=256,
    blocks_cached=100,
    blocks_free=668,
    prefill_capacity_tokens_per_second=512.0,
    last_step_timestamp=1_700_000_000.5,
    num_steps=9,
    kv_cache_token_seconds=1e6,
    preemptions_recompute=4,
    preemptions_swap=1,
    prompt_tokens=6_000,
    prompt_tokens_computed=5_000,
    generation_tokens=900,
    prefix_cache_queries=6_000,
    prefix_cache_hits=1_000,
    finished={},
)
LEDGER = EngineLedger(
    profile="pagefleet",
    budget_bytes=0,
    terms=(),
    block_size=16,
    num_blocks=1024,
    limits={},
    peak_bytes=0,
)


def exported(*, loaded: bool) -> str:
    limits = AdmissionLimits(max_model_len=2048, kv_capacity_tokens=16_384, vocab_size=100)
    view = EngineView(limits=limits, ledger=LEDGER, stats=STATS, received=0.0)
    requests = RequestMetrics()
    requests.finish(FinishReason.STOP, seconds=2.0)
    requests.finish(FinishReason.LENGTH, seconds=3.0)
    for seconds in (0.3, 0.4):
        requests.time_to_first_token.observe(seconds)
    registry = CollectorRegistry()
    registry.register(
        EngineCollector(
            model_name="m",
            requests=requests,
            lifecycle=Lifecycle(),
            view=lambda: view if loaded else None,
            clock=lambda: 0.0,
        )
    )
    return generate_latest(registry).decode()


def test_the_operator_reads_all_it_needs_from_an_engine() -> None:
    sample = parse_metrics(exported(loaded=True), pod="a", scraped_at=0.0)
    assert (sample.running, sample.waiting, sample.waiting_prompt_tokens) == (3, 2, 700)
    assert (sample.kv_used_tokens, sample.kv_capacity_tokens) == (4_096, 16_384)
    assert sample.oldest_waiting_seconds == 1.5
    assert sample.prefill_tokens_per_second == 512
    assert sample.last_step_at == 1_700_000_000.5
    counters = sample.counters
    assert (counters.finished, counters.arrivals, counters.preemptions) == (2, 7, 5)
    assert (counters.prompt_tokens_computed, counters.generation_tokens) == (5_000, 900)
    assert counters.kv_token_seconds == 1e6
    assert counters.time_to_first_token.total == 2


def test_an_engine_that_still_loads_is_missing_and_not_empty() -> None:
    with pytest.raises(MetricsError, match="reports no pagefleet_requests_running"):
        parse_metrics(exported(loaded=False), pod="a", scraped_at=0.0)
