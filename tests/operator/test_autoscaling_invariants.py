"""What holds for every fleet: bounds, order of pods, monotony, vetoes, repetition, scale."""

from dataclasses import fields, replace
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from pagefleet_operator.autoscaling import (
    AutoscalerState,
    AutoscalingSettings,
    Counters,
    FleetSnapshot,
    PodObservation,
    PodState,
    decide,
)
from pagefleet_operator.autoscaling.demand import RequestStatistics, Supply, replicas_needed
from pagefleet_operator.autoscaling.fleet import Load
from pagefleet_operator.autoscaling.settings import AutoscalingTargets
from tests.operator.autoscaling_builders import KV_TOKENS, pods_using, sample, snapshot

amounts = st.floats(min_value=0, max_value=1e6)


@st.composite
def pods(draw: st.DrawFn) -> PodObservation:
    name = f"pod-{draw(st.integers(0, 10**9))}"
    state = draw(st.sampled_from(PodState))
    if draw(st.booleans()):
        return PodObservation(name, state)
    counters = Counters(
        arrivals=draw(amounts),
        finished=draw(amounts),
        prompt_tokens_computed=draw(amounts),
        generation_tokens=draw(amounts),
        kv_token_seconds=draw(amounts),
        preemptions=draw(st.sampled_from([0, 1, 50])),
    )
    one = sample(
        name,
        at=draw(st.sampled_from([0.0, 80.0, 100.0])),
        used=draw(st.floats(min_value=0, max_value=KV_TOKENS)),
        running=draw(st.integers(0, 50)),
        waiting=draw(st.integers(0, 500)),
        waiting_tokens=draw(amounts),
        oldest=draw(st.sampled_from([0.0, 0.5, 30.0])),
        counters=counters,
        prefill_rate=draw(st.sampled_from([None, 500.0, 9_000.0])),
    )
    return PodObservation(name, state, one)


@st.composite
def configs(draw: st.DrawFn) -> AutoscalingSettings:
    least = draw(st.integers(1, 5))
    return AutoscalingSettings(min_replicas=least, max_replicas=least + draw(st.integers(0, 20)))


@st.composite
def fleets(draw: st.DrawFn) -> FleetSnapshot:
    return FleetSnapshot(
        pods=tuple(draw(st.lists(pods(), max_size=8, unique_by=lambda pod: pod.name))),
        current_replicas=draw(st.integers(0, 30)),
        capacity=snapshot(()).capacity,
        settings=draw(configs()),
        free_slots=draw(st.sampled_from([None, 0, 3])),
        rollout_running=draw(st.booleans()),
    )


@cache
def after_a_window() -> AutoscalerState:
    """A state that has seen an idle fleet for long enough to let it shrink."""
    config = AutoscalingSettings(min_replicas=1, max_replicas=30)
    state = AutoscalerState()
    for at in range(-700, 95, 30):
        idle = snapshot(pods_using(0.0, at=float(at)), config=config)
        state = decide(idle, state, float(at)).state
    return state


@settings(max_examples=50)
@given(fleets())
def test_size_stays_within_the_bounds(fleet: FleetSnapshot) -> None:
    desired = decide(fleet, after_a_window(), 100.0).desired_replicas
    assert fleet.settings.min_replicas <= desired <= fleet.settings.max_replicas


@settings(max_examples=50)
@given(fleets(), st.randoms(use_true_random=False))
def test_order_of_the_pods_does_not_matter(fleet: FleetSnapshot, random: object) -> None:
    shuffled = list(fleet.pods)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    state = after_a_window()
    one = decide(fleet, state, 100.0)
    other = decide(replace(fleet, pods=tuple(shuffled)), state, 100.0)
    assert (one.desired_replicas, one.reason) == (other.desired_replicas, other.reason)


@settings(max_examples=50)
@given(fleets())
def test_the_same_snapshot_again_changes_nothing(fleet: FleetSnapshot) -> None:
    first = decide(fleet, after_a_window(), 100.0)
    again = decide(fleet, first.state, 100.0)
    assert again.desired_replicas == first.desired_replicas
    assert again.reason == first.reason
    assert again.state == first.state


@settings(max_examples=50)
@given(fleets(), st.sampled_from(["rollout", "waiting", "restart"]))
def test_no_veto_lets_the_fleet_shrink_within_its_bounds(fleet: FleetSnapshot, veto: str) -> None:
    state = after_a_window()
    if veto == "rollout":
        fleet = replace(fleet, rollout_running=True)
    if veto == "waiting":
        late = PodObservation("late", PodState.READY, sample("late", at=100.0, oldest=60.0))
        fleet = replace(fleet, pods=(*fleet.pods, late))
    if veto == "restart":
        state = AutoscalerState()
    desired = decide(fleet, state, 100.0).desired_replicas
    assert desired >= min(fleet.current_replicas, fleet.settings.max_replicas)


loads = st.builds(
    Load, used_tokens=amounts, waiting_prompt_tokens=amounts, running=amounts, waiting=amounts
)
statistics = st.builds(
    RequestStatistics,
    arrivals_per_second=st.floats(0, 1e3),
    prompt_tokens=st.none() | st.floats(1, 1e5),
    output_tokens=st.none() | st.floats(1, 1e4),
    kv_token_seconds=st.none() | st.floats(1, 1e7),
)
SUPPLY = Supply(
    kv_tokens=KV_TOKENS, prefill_tokens_per_second=2_000, max_num_seqs=64, clearing_seconds=60
)


@given(loads, statistics, amounts, st.sampled_from([field.name for field in fields(Load)]))
def test_more_load_never_needs_fewer_replicas(
    load: Load, means: RequestStatistics, more: float, field: str
) -> None:
    grown = replace(load, **{field: getattr(load, field) + more})
    targets = AutoscalingTargets()
    before = replicas_needed(load, means, SUPPLY, targets)
    assert replicas_needed(grown, means, SUPPLY, targets).replicas >= before.replicas


@given(loads, statistics, st.floats(0, 1e3))
def test_more_arrivals_never_need_fewer_replicas(
    load: Load, means: RequestStatistics, more: float
) -> None:
    grown = replace(means, arrivals_per_second=means.arrivals_per_second + more)
    targets = AutoscalingTargets()
    before = replicas_needed(load, means, SUPPLY, targets)
    assert replicas_needed(load, grown, SUPPLY, targets).replicas >= before.replicas


@given(loads, statistics)
def test_shrinking_asks_for_more_room_than_growing(load: Load, means: RequestStatistics) -> None:
    targets = AutoscalingTargets()
    up = replicas_needed(load, means, SUPPLY, targets)
    down = replicas_needed(load, means, SUPPLY, targets.for_scale_down())
    assert down.replicas >= up.replicas


@given(st.lists(st.floats(0, KV_TOKENS), min_size=1, max_size=6), st.integers(2, 5))
def test_size_scales_with_the_fleet(used: list[float], times: int) -> None:
    config = AutoscalingSettings(min_replicas=1, max_replicas=1000)
    one = decide(snapshot(pods_using(*used), config=config, current=1), AutoscalerState(), 0.0)
    many = decide(
        snapshot(pods_using(*used * times), config=config, current=1), AutoscalerState(), 0.0
    )
    assert one.demand is not None and many.demand is not None
    assert abs(many.demand.occupancy - times * one.demand.occupancy) < 1e-6
