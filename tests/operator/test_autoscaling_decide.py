"""decide() on small fleets: exact sizes, reasons and conditions.

Covered: up and down sizes, hysteresis, windows, policies, bounds, capacity, vetoes, the preemption
and latency steps, freshness of metrics, restarts, Advisory mode. Left out: dynamics over time
(test_autoscaling_simulated) and invariants (test_autoscaling_invariants).
"""

from dataclasses import replace

import pytest

from pagefleet_operator.autoscaling import (
    AutoscalingMode,
    AutoscalingSettings,
    AutoscalingTargets,
    Counters,
    Decision,
    Histogram,
    PodObservation,
    PodState,
    PolicyType,
    ScalingBehavior,
    ScalingPolicy,
    ScalingRules,
    SelectPolicy,
    restore_state,
)
from tests.operator.autoscaling_builders import (
    Controller,
    pods_using,
    ready,
    sample,
    settings,
    silent,
    snapshot,
)


def condition(decision: Decision, type_: str) -> tuple[str, str]:
    found = next(one for one in decision.conditions if one.type == type_)
    return found.status, found.reason


@pytest.mark.parametrize(
    ("used", "desired", "reason"),
    [
        ([7_400], 1, "WithinTargets"),
        ([7_600], 2, "KVOccupancyAboveTarget"),
        ([10_000, 10_000, 10_000], 4, "KVOccupancyAboveTarget"),
        ([7_000, 7_000], 2, "WithinTargets"),  # 14000 needs 1.9 up, 2.3 down: the band
        ([5_900, 0], 1, "DemandBelowTarget"),
        ([6_100, 0], 2, "WithinTargets"),
        ([0, 0, 0], 1, "TooFewReplicas"),
    ],
)
def test_size_follows_demand_with_a_band_between_up_and_down(
    used: list[float], desired: int, reason: str
) -> None:
    decision = Controller().see(used)
    assert (decision.desired_replicas, decision.reason) == (desired, reason)
    assert decision.valid


def test_message_and_conditions_carry_the_numbers() -> None:
    decision = Controller().see([9_000, 9_000])
    assert decision.message == (
        "2 -> 3: 18000 KV tokens need 2.40 replicas of 10000 KV tokens at 75%"
    )
    assert decision.binding == "occupancy"
    assert condition(decision, "AbleToScale") == ("True", "SucceededRescale")
    assert condition(decision, "ScalingActive") == ("True", "ValidMetricFound")
    assert condition(decision, "ScalingLimited") == ("False", "DesiredWithinRange")


def test_pending_and_starting_pods_are_supply_so_the_size_does_not_cascade() -> None:
    controller = Controller()
    for pending in (0, 1, 2):
        pods = [
            *pods_using(10_000, 10_000, at=controller.now + 15),
            *(silent(f"new-{i}", PodState.STARTING) for i in range(pending)),
        ]
        decision = controller.tick(snapshot(pods, current=2 + pending))
        assert decision.desired_replicas == max(3, 2 + pending)


def test_draining_pods_hold_back_shrinking_but_do_not_cause_growth() -> None:
    at = 15.0
    draining = PodObservation("old", PodState.DRAINING, sample("old", at=at, used=9_000))
    controller = Controller()
    grown = controller.tick(snapshot([*pods_using(7_000, at=at), draining], current=1))
    assert grown.desired_replicas == 1
    kept = Controller().tick(snapshot([*pods_using(2_000, 2_000, at=at), draining], current=2))
    assert kept.desired_replicas == 2


def test_failed_pods_are_neither_supply_nor_demand() -> None:
    at = 15.0
    failed = PodObservation("bad", PodState.FAILED, sample("bad", at=at, used=9_000))
    decision = Controller().tick(snapshot([*pods_using(7_000, at=at), failed], current=2))
    assert decision.desired_replicas == 2  # 7000 tokens need 1.17 at the scale-down target


# Windows


def test_up_window_takes_the_least_and_down_window_the_most() -> None:
    controller = Controller()
    config = settings(up_window=30, down_window=30)
    assert controller.see([9_000], config=config).desired_replicas == 2
    controller = Controller()
    controller.see([1_000], config=config)
    held = controller.see([9_000], config=config)
    assert held.desired_replicas == 1
    assert controller.see([9_000], config=config, times=2).desired_replicas == 2


def test_scale_down_waits_for_the_whole_window_after_a_peak() -> None:
    controller = Controller()
    config = settings(down_window=60)
    controller.see([7_000, 7_000, 7_000], config=config, times=5)
    held = controller.see([1_000, 0, 0], config=config)
    assert (held.desired_replicas, held.reason) == (3, "ScaleDownStabilized")
    assert condition(held, "AbleToScale") == ("True", "ScaleDownStabilized")
    assert controller.see([1_000, 0, 0], config=config, times=3).desired_replicas == 3
    assert controller.see([1_000, 0, 0], config=config).desired_replicas == 1


def test_nothing_shrinks_before_one_window_was_observed_after_a_restart() -> None:
    controller = Controller()
    config = settings(down_window=60)
    first = controller.see([0, 0], config=config)
    assert (first.desired_replicas, first.reason) == (2, "WindowNotObserved")
    assert controller.see([0, 0], config=config, times=3).desired_replicas == 2
    assert controller.see([0, 0], config=config).desired_replicas == 1


def test_a_long_silence_of_the_controller_counts_as_a_restart() -> None:
    controller = Controller()
    config = settings(down_window=60)
    controller.see([7_000, 7_000], config=config, times=6)
    pods = pods_using(0, 0, at=controller.now + 500)
    decision = controller.tick(snapshot(pods, config=config), seconds=500)
    assert (decision.desired_replicas, decision.reason) == (2, "WindowNotObserved")


def test_a_restarted_controller_still_scales_up_at_once() -> None:
    decision = Controller().see([9_500], config=settings(down_window=600))
    assert decision.desired_replicas == 2


# Policies


def with_policies(*, up: ScalingRules, down: ScalingRules, most: int = 100) -> AutoscalingSettings:
    return AutoscalingSettings(
        min_replicas=1, max_replicas=most, behavior=ScalingBehavior(scale_up=up, scale_down=down)
    )


def rules(*policies: ScalingPolicy, select: SelectPolicy = SelectPolicy.MAX) -> ScalingRules:
    return ScalingRules(
        stabilization_window_seconds=0, policies=tuple(policies), select_policy=select
    )


PODS_4 = ScalingPolicy(PolicyType.PODS, 4, 60)
PERCENT_100 = ScalingPolicy(PolicyType.PERCENT, 100, 60)
PODS_1 = ScalingPolicy(PolicyType.PODS, 1, 60)
PERCENT_25 = ScalingPolicy(PolicyType.PERCENT, 25, 60)


@pytest.mark.parametrize(
    ("replicas", "select", "desired"),
    [
        (2, SelectPolicy.MAX, 6),  # +4 beats doubling
        (6, SelectPolicy.MAX, 12),  # doubling beats +4
        (6, SelectPolicy.MIN, 10),
        (6, SelectPolicy.DISABLED, 6),
    ],
)
def test_scale_up_policies(replicas: int, select: SelectPolicy, desired: int) -> None:
    config = with_policies(up=rules(PODS_4, PERCENT_100, select=select), down=rules(PODS_1))
    pods = [
        ready(sample(f"pod-{i}", at=15, used=10_000, waiting_tokens=100_000))
        for i in range(replicas)
    ]
    decision = Controller().tick(snapshot(pods, config=config))
    assert decision.desired_replicas == desired
    assert condition(decision, "ScalingLimited") == ("True", "ScaleUpLimit")


@pytest.mark.parametrize(
    ("replicas", "select", "desired"),
    [
        (2, SelectPolicy.MAX, 1),
        (8, SelectPolicy.MAX, 6),
        (8, SelectPolicy.MIN, 7),
        (8, SelectPolicy.DISABLED, 8),
    ],
)
def test_scale_down_policies(replicas: int, select: SelectPolicy, desired: int) -> None:
    config = with_policies(up=rules(PODS_4), down=rules(PODS_1, PERCENT_25, select=select))
    decision = Controller().see([0] * replicas, config=config)
    assert decision.desired_replicas == desired


def test_policy_period_limits_the_sum_of_several_steps() -> None:
    config = with_policies(up=rules(PODS_4), down=rules(PODS_1))
    controller = Controller()
    sizes = []
    current = 4
    for _ in range(8):
        current = controller.see([0] * current, config=config).desired_replicas
        sizes.append(current)
    assert sizes == [3, 3, 3, 3, 3, 2, 2, 2]


def test_change_that_was_not_carried_out_does_not_use_up_the_policy() -> None:
    config = with_policies(up=rules(PODS_4), down=rules(PODS_1))
    controller = Controller()
    assert controller.see([0] * 4, config=config, times=9).desired_replicas == 3


# Bounds and capacity


def test_size_outside_the_bounds_is_brought_inside_at_once() -> None:
    above = Controller().see([9_000] * 5, config=settings(most=3))
    assert (above.desired_replicas, above.reason) == (3, "TooManyReplicas")
    below = Controller().tick(snapshot([], current=0, config=settings(least=2)))
    assert below.desired_replicas == 2


def test_growth_stops_at_the_room_on_the_nodes_and_one_probe() -> None:
    pods = [ready(sample(f"pod-{i}", at=15, used=10_000, waiting_tokens=50_000)) for i in (0, 1)]
    decision = Controller().tick(snapshot(pods, free_slots=1))
    assert decision.desired_replicas == 4  # two that run, one that fits, one that asks for a node
    assert decision.binding == "capacity"
    assert condition(decision, "ScalingLimited") == ("True", "InsufficientCapacity")
    assert "room for 3 replicas" in decision.message


def test_pods_that_never_schedule_add_no_further_ones() -> None:
    controller = Controller()
    for _ in range(3):
        busy = ready(sample("pod-0", at=controller.now + 15, used=10_000, waiting_tokens=90_000))
        pods = [busy, silent("new", PodState.PENDING)]
        assert controller.tick(snapshot(pods, free_slots=0)).desired_replicas == 2


def test_pods_that_never_schedule_do_not_block_shrinking() -> None:
    pods = [*pods_using(1_000, 1_000, at=15), *(silent(f"p{i}", PodState.PENDING) for i in "abc")]
    decision = Controller().tick(snapshot(pods, free_slots=0))
    assert decision.desired_replicas == 1


def test_a_lost_node_does_not_shrink_the_fleet_below_what_its_load_needs() -> None:
    pods = [*pods_using(10_000, 10_000, at=15), *(silent(f"p{i}", PodState.PENDING) for i in "abc")]
    assert Controller().tick(snapshot(pods, free_slots=0)).desired_replicas == 4


# Vetoes and steps


def test_waiting_requests_veto_shrinking() -> None:
    pods = [ready(sample("a", at=15, oldest=1.5)), *pods_using(0, at=15)]
    decision = Controller().tick(snapshot(pods))
    assert (decision.desired_replicas, decision.reason) == (2, "RequestsWaiting")
    patient = settings(targets=AutoscalingTargets(ttft_p90_seconds=10))
    assert Controller().tick(snapshot(pods, config=patient)).desired_replicas == 1


def test_rollout_vetoes_shrinking_but_not_growth() -> None:
    decision = Controller().see([0, 0], rollout_running=True)
    assert (decision.desired_replicas, decision.reason) == (2, "RolloutRunning")
    assert Controller().see([9_000, 9_000], rollout_running=True).desired_replicas == 3


def preempting(controller: Controller, total: float, *, pods: int = 2, used: float = 0) -> Decision:
    at = controller.now + 15
    first = sample("pod-0", at=at, used=used, counters=Counters(preemptions=total))
    rest = pods_using(*([used] * pods), at=at)[1:]
    return controller.tick(snapshot([ready(first), *rest]))


def test_a_few_preemptions_veto_shrinking() -> None:
    controller = Controller()
    preempting(controller, 0, used=6_500)
    decision = preempting(controller, 1)
    assert (decision.desired_replicas, decision.reason) == (2, "Preempting")


def test_lasting_preemptions_force_one_step_and_only_one() -> None:
    controller = Controller()
    preempting(controller, 1_000, used=6_500)  # a counter's value is no rate
    first = preempting(controller, 1_010, used=6_500)
    assert first.desired_replicas == 2
    second = preempting(controller, 1_020, used=6_500)
    assert (second.desired_replicas, second.reason) == (3, "PreemptionPressure")
    assert second.binding == "preemption"
    grown = preempting(controller, 1_020, pods=3, used=4_500)
    assert grown.desired_replicas == 3  # those preemptions were before the third pod served


def test_preemption_counter_that_restarts_is_not_negative_nor_repeated() -> None:
    controller = Controller()
    preempting(controller, 500, used=6_500)
    decision = preempting(controller, 0, used=6_500)
    assert decision.state.flow_since(0).preemptions == 0


def latencies(controller: Controller, *, seconds: float, count: float, waiting: int) -> Decision:
    histogram = Histogram((seconds, float("inf")), (count, count))
    one = sample(
        "pod-0",
        at=controller.now + 15,
        used=5_000,
        waiting=waiting,
        counters=Counters(time_to_first_token=histogram),
    )
    config = settings(targets=AutoscalingTargets(ttft_p90_seconds=2))
    return controller.tick(snapshot([ready(one)], config=config))


@pytest.mark.parametrize(("seconds", "waiting", "desired"), [(8.0, 3, 2), (8.0, 0, 1), (1.0, 3, 1)])
def test_late_first_tokens_force_a_step_if_requests_wait(
    seconds: float, waiting: int, desired: int
) -> None:
    controller = Controller()
    for count in (0, 50, 100, 150):
        decision = latencies(controller, seconds=seconds, count=count, waiting=waiting)
    assert decision.desired_replicas == desired
    if desired == 2:
        assert decision.reason == "LatencyAboveTarget"


def test_slow_tokens_with_an_empty_batch_are_no_reason_to_grow() -> None:
    controller = Controller()
    config = settings(targets=AutoscalingTargets(itl_p90_seconds=0.05))
    for count in (0.0, 100.0, 200.0, 300.0):
        histogram = Histogram((0.2, float("inf")), (count, count))
        one = sample(
            "pod-0",
            at=controller.now + 15,
            used=5_000,
            running=1,
            counters=Counters(inter_token_latency=histogram),
        )
        decision = controller.tick(snapshot([ready(one)], config=config, max_num_seqs=64))
    assert decision.desired_replicas == 1
    assert condition(decision, "SLOAttainable") == ("False", "EngineTooSlow")


# Freshness of metrics


def test_missing_metrics_are_not_zeros() -> None:
    controller = Controller()
    controller.see([7_000, 7_000, 7_000])
    for _ in range(5):
        pods = [*pods_using(7_000, 7_000, at=controller.now + 15), silent("pod-2")]
        decision = controller.tick(snapshot(pods))
        assert decision.desired_replicas == 3


def test_a_fifth_of_the_pods_silent_vetoes_shrinking() -> None:
    controller = Controller()
    pods = [*pods_using(100, 100, 100, at=15), silent("pod-3")]
    decision = controller.tick(snapshot(pods))
    assert (decision.desired_replicas, decision.reason) == (4, "MetricsMissing")


def test_half_of_the_pods_silent_freezes_the_size() -> None:
    pods = [*pods_using(10_000, at=15), silent("pod-1"), silent("pod-2")]
    decision = Controller().tick(snapshot(pods))
    assert not decision.valid
    assert (decision.desired_replicas, decision.reason) == (3, "MetricsUnavailable")
    assert condition(decision, "ScalingActive") == ("False", "MetricsUnavailable")


def test_no_ready_pod_keeps_the_size() -> None:
    pods = [silent("a", PodState.STARTING), silent("b", PodState.FAILED)]
    decision = Controller().tick(snapshot(pods, current=5))
    assert (decision.desired_replicas, decision.valid) == (5, False)


def test_last_sample_is_carried_for_a_minute() -> None:
    controller = Controller()
    controller.see([9_500, 9_500])
    pods = [silent("pod-0"), silent("pod-1")]
    carried = controller.tick(snapshot(pods), seconds=60)
    assert (carried.desired_replicas, carried.valid) == (3, True)
    assert not controller.tick(snapshot(pods)).valid


def test_hung_engine_is_not_counted_as_serving() -> None:
    controller = Controller()
    for total in (0, 10, 20, 30):
        at = controller.now + 15
        working = sample("a", at=at, used=5_000, counters=Counters(preemptions=total))
        hung = sample("b", at=at, used=5_000, running=3, last_step_at=at - 100)
        decision = controller.tick(snapshot([ready(working), ready(hung)]))
    assert decision.desired_replicas == 2  # one that serves, and one step


# Modes and memory


def test_advisory_mode_recommends_and_changes_nothing() -> None:
    config = replace(settings(), mode=AutoscalingMode.ADVISORY)
    decision = Controller().see([9_000, 9_000], config=config)
    assert (decision.desired_replicas, decision.recommended_replicas) == (2, 3)
    assert condition(decision, "ScalingActive") == ("False", "ScalingDisabled")
    assert decision.state.history == ()


def test_history_keeps_the_last_five_changes_and_survives_a_restart() -> None:
    controller = Controller(now=1_700_000_000.0)
    current = 1
    for _ in range(7):
        current = controller.see([9_900] * current).desired_replicas
    status = controller.see([0] * current, config=settings(least=current)).to_status()
    assert isinstance(status["history"], list)
    assert [entry["to"] for entry in status["history"]] == [15, 11, 8, 6, 4]
    assert status["lastScaleTime"] == status["history"][0]["at"] == "2023-11-14T22:15:05Z"
    restored = restore_state(status)
    assert restored.history == controller.state.history


def test_a_change_that_waits_to_be_carried_out_is_recorded_once() -> None:
    controller = Controller()
    decision = controller.see([9_500], times=4)
    assert len(decision.state.history) == 1


def test_state_stays_bounded() -> None:
    controller = Controller()
    for i in range(400):
        at = controller.now + 15
        one = sample("a", at=at, used=5_000, counters=Counters(arrivals=i, finished=i))
        controller.tick(snapshot([ready(one)], config=settings(down_window=600)))
    assert len(controller.state.flows) <= 41
    assert len(controller.state.recommendations) <= 41
    assert len(controller.state.replica_counts) == 1


def test_bounds_are_checked() -> None:
    with pytest.raises(ValueError, match="minReplicas=3 and maxReplicas=2"):
        AutoscalingSettings(min_replicas=3, max_replicas=2)
