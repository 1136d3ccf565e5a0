"""The demand law, term by term, against numbers worked out by hand.

Covered: occupancy, rate, prefill and sequence terms, the backlog's discount, what counts as
supply, and the sources of the statistics. Left out: windows and bounds (test_autoscaling_decide).
"""

import pytest

from pagefleet_operator.autoscaling import (
    AutoscalerState,
    AutoscalingTargets,
    Counters,
    Histogram,
    ReplicaCapacity,
)
from pagefleet_operator.autoscaling.demand import (
    RequestStatistics,
    Supply,
    Term,
    read_statistics,
    read_supply,
    replicas_needed,
)
from pagefleet_operator.autoscaling.fleet import FleetView, Freshness, Load, PodView
from pagefleet_operator.autoscaling.snapshot import PodState
from pagefleet_operator.autoscaling.state import Flow
from tests.operator.autoscaling_builders import sample

SUPPLY = Supply(
    kv_tokens=10_000, prefill_tokens_per_second=None, max_num_seqs=None, clearing_seconds=60
)
NO_STATISTICS = RequestStatistics(
    arrivals_per_second=0, prompt_tokens=None, output_tokens=None, kv_token_seconds=None
)
# 1000 prompt + 200 output tokens, held for 20 s: w = 1100 * 20, so S = 20 s.
TYPICAL = RequestStatistics(
    arrivals_per_second=2, prompt_tokens=1000, output_tokens=200, kv_token_seconds=22_000
)
IDLE = Load(used_tokens=0, waiting_prompt_tokens=0, running=0, waiting=0)


def supply(*, prefill: float | None = None, max_num_seqs: int | None = None) -> Supply:
    return Supply(
        kv_tokens=10_000,
        prefill_tokens_per_second=prefill,
        max_num_seqs=max_num_seqs,
        clearing_seconds=60,
    )


@pytest.mark.parametrize(
    ("used", "queued", "replicas"),
    [(0, 0, 0.0), (7_500, 0, 1.0), (15_000, 0, 2.0), (10_000, 65_000, 10.0)],
)
def test_occupancy_is_demand_over_target_and_is_not_clipped_by_a_full_pool(
    used: float, queued: float, replicas: float
) -> None:
    load = Load(used_tokens=used, waiting_prompt_tokens=queued, running=0, waiting=0)
    demand = replicas_needed(load, NO_STATISTICS, SUPPLY, AutoscalingTargets())
    assert demand.occupancy == pytest.approx(replicas)


def test_backlog_counts_only_as_far_as_it_outlives_the_start_of_a_replica() -> None:
    load = Load(used_tokens=0, waiting_prompt_tokens=20_000, running=0, waiting=25)
    demand = replicas_needed(load, TYPICAL, SUPPLY, AutoscalingTargets())
    # (20000 + 25 * 200/2) * 20 s / 60 s = 7500 tokens
    assert demand.occupancy == pytest.approx(1.0)


def test_rate_term_is_littles_law() -> None:
    demand = replicas_needed(IDLE, TYPICAL, SUPPLY, AutoscalingTargets())
    assert demand.rate == pytest.approx(2 * 22_000 / 7_500)
    assert demand.binding is Term.RATE
    assert demand.replicas == 6


def test_prefill_term_sees_load_that_the_kv_cache_does_not() -> None:
    short = RequestStatistics(
        arrivals_per_second=8, prompt_tokens=6000, output_tokens=2, kv_token_seconds=3000
    )
    load = Load(used_tokens=1_000, waiting_prompt_tokens=60_000, running=1, waiting=10)
    demand = replicas_needed(load, short, supply(prefill=8_000), AutoscalingTargets())
    assert demand.prefill == pytest.approx((8 * 6000 + 60_000 / 60) / (0.6 * 8_000))
    assert demand.binding is Term.PREFILL


def test_prefill_term_is_absent_until_a_rate_is_known() -> None:
    load = Load(used_tokens=0, waiting_prompt_tokens=60_000, running=0, waiting=10)
    assert replicas_needed(load, TYPICAL, SUPPLY, AutoscalingTargets()).prefill == 0


def test_sequence_term_sees_a_full_batch_of_short_requests() -> None:
    load = Load(used_tokens=100, waiting_prompt_tokens=0, running=8, waiting=16)
    demand = replicas_needed(load, NO_STATISTICS, supply(max_num_seqs=8), AutoscalingTargets())
    assert demand.sequences == pytest.approx(24 / 6)
    assert demand.binding is Term.SEQUENCES


def test_whole_demand_is_not_rounded_up_by_a_rounding_error() -> None:
    load = Load(used_tokens=0.1 * 3 * 25_000, waiting_prompt_tokens=0, running=0, waiting=0)
    assert replicas_needed(load, NO_STATISTICS, SUPPLY, AutoscalingTargets()).replicas == 1


def test_cold_fleet_has_the_plans_numbers_and_a_warm_one_its_own() -> None:
    capacity = ReplicaCapacity(kv_tokens=7_000, cold_start_seconds=200)
    cold = read_supply(capacity, FleetView(()))
    assert (cold.kv_tokens, cold.prefill_tokens_per_second) == (7_000, None)
    assert cold.clearing_seconds == 200
    measured = sample("a", prefill_rate=512)
    warm = read_supply(
        capacity, FleetView((PodView("a", PodState.READY, measured, Freshness.FRESH),))
    )
    assert (warm.kv_tokens, warm.prefill_tokens_per_second) == (10_000, 512)


def flow(start: float, end: float, growth: Counters) -> Flow:
    return Flow(start, end, growth)


def test_statistics_are_means_over_three_minutes_and_rates_over_one() -> None:
    growth = Counters(
        arrivals=30,
        finished=20,
        prompt_tokens_computed=24_000,
        generation_tokens=4_000,
        kv_token_seconds=440_000,
        time_to_first_token=Histogram((1.0, float("inf")), (24.0, 24.0)),
    )
    state = AutoscalerState(observing_since=0.0, flows=(flow(0, 60, growth),))
    statistics = read_statistics(state, FleetView(()), 60.0)
    assert statistics.arrivals_per_second == pytest.approx(0.5)
    assert statistics.prompt_tokens == pytest.approx(1000)
    assert statistics.output_tokens == pytest.approx(200)
    assert statistics.kv_token_seconds == pytest.approx(22_000)
    assert statistics.residence_seconds == pytest.approx(20)


def test_few_finished_requests_say_nothing_about_the_mean() -> None:
    growth = Counters(finished=9, prompt_tokens_computed=9_000, generation_tokens=900)
    state = AutoscalerState(observing_since=0.0, flows=(flow(0, 60, growth),))
    statistics = read_statistics(state, FleetView(()), 60.0)
    assert statistics.prompt_tokens is None
    assert statistics.kv_token_seconds is None


def test_flow_that_began_before_the_window_counts_by_its_overlap() -> None:
    state = AutoscalerState(observing_since=0.0, flows=(flow(0, 120, Counters(arrivals=120)),))
    assert state.flow_since(60.0).arrivals == pytest.approx(60)
    assert read_statistics(state, FleetView(()), 120.0).arrivals_per_second == pytest.approx(1.0)


def test_silent_pod_is_taken_to_go_on_like_the_others() -> None:
    """Two pods with one request per second each; one has been silent for the last 15 s."""
    flows = (
        Flow(0, 45, Counters(arrivals=90), pods=2),
        Flow(45, 60, Counters(arrivals=15), pods=1),
    )
    state = AutoscalerState(observing_since=0.0, flows=flows)
    fleet = FleetView(
        (
            PodView("a", PodState.READY, sample("a", at=60), Freshness.FRESH),
            PodView("b", PodState.READY, sample("b", at=45), Freshness.FRESH),
        )
    )
    assert read_statistics(state, fleet, 60.0).arrivals_per_second == pytest.approx(2.0)


def test_statistics_without_any_observation_are_not_a_division_by_zero() -> None:
    assert (
        read_statistics(
            AutoscalerState(observing_since=5.0), FleetView(()), 5.0
        ).arrivals_per_second
        == 0
    )
