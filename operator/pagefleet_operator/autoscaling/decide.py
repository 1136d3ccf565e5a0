"""decide(): from a snapshot of the fleet to the number of replicas it should have. Pure."""

from dataclasses import replace

from pagefleet_operator.autoscaling import explain
from pagefleet_operator.autoscaling.decision import Decision
from pagefleet_operator.autoscaling.demand import (
    Demand,
    RequestStatistics,
    Supply,
    read_statistics,
    read_supply,
    replicas_needed,
)
from pagefleet_operator.autoscaling.fleet import FleetView, view_fleet
from pagefleet_operator.autoscaling.guards import find_veto, read_pressure, step_up, watch_pressure
from pagefleet_operator.autoscaling.settings import AutoscalingMode
from pagefleet_operator.autoscaling.snapshot import FleetSnapshot
from pagefleet_operator.autoscaling.stabilize import (
    Limit,
    Size,
    apply_policies,
    clamp,
    remember_recommendation,
    stabilize,
)
from pagefleet_operator.autoscaling.state import (
    AutoscalerState,
    Recommendation,
    ScaleEvent,
    record_samples,
    remember_event,
)

MAX_MISSING_TO_DECIDE = 0.5


def decide(snapshot: FleetSnapshot, state: AutoscalerState, now: float) -> Decision:
    """The same snapshot, state and time always give the same decision.

    `now` is the clock of the samples' `scraped_at`, in seconds since the epoch.
    """
    state = record_samples(state, snapshot, now)
    fleet = view_fleet(snapshot, state, now)
    blindness = _why_blind(fleet)
    if blindness:
        return _hold(snapshot, state, blindness, now)
    state = watch_pressure(state, snapshot, fleet, now)
    return _follow_demand(snapshot, state, fleet, now)


def _why_blind(fleet: FleetView) -> str | None:
    """No metric is not a zero: without enough of them nothing is decided."""
    if not fleet.ready:
        return "no pod is ready"
    if fleet.missing_share > MAX_MISSING_TO_DECIDE:
        return f"{fleet.missing} of {len(fleet.ready)} ready pods report no metrics"
    return None


def _hold(snapshot: FleetSnapshot, state: AutoscalerState, why: str, now: float) -> Decision:
    current = snapshot.current_replicas
    state = _recommend(snapshot, state, Recommendation(now, up=current, down=current))
    size = clamp(current, snapshot.settings, current=current, placeable=None)
    reason = "MetricsUnavailable"
    text = f"keep {size.replicas}: {why}"
    if size.replicas != current:
        text = f"{current} -> {size.replicas}: outside minReplicas and maxReplicas; {why}"
    desired = _desired(snapshot, size)
    event = _event(snapshot, desired, reason, text, now)
    return Decision(
        desired_replicas=desired,
        recommended_replicas=size.replicas,
        current_replicas=current,
        binding=size.limit.value,
        reason=reason,
        message=text,
        valid=False,
        conditions=explain.metrics_unavailable(why),
        demand=None,
        state=replace(state, history=remember_event(state.history, event)),
    )


def _follow_demand(
    snapshot: FleetSnapshot, state: AutoscalerState, fleet: FleetView, now: float
) -> Decision:
    settings, current = snapshot.settings, snapshot.current_replicas
    supply = read_supply(snapshot.capacity, fleet)
    statistics = read_statistics(state, fleet, now)
    demand = replicas_needed(fleet.load(), statistics, supply, settings.targets)
    cautious = _cautious_demand(snapshot, fleet, statistics, supply)
    pressure = read_pressure(state, snapshot, fleet, now)
    floor = step_up(fleet) if pressure.any else 0
    newest = Recommendation(now, up=max(demand.replicas, floor), down=max(cautious.replicas, floor))
    state = _recommend(snapshot, state, newest)
    stable = stabilize(state.recommendations, settings, current=current, now=now)
    veto = find_veto(state, snapshot, fleet, now) if stable.replicas < current else None
    placeable = _placeable(snapshot, fleet)
    wanted = current if veto else stable.replicas
    found = explain.Findings(
        current=current,
        size=_limited(snapshot, state, wanted, placeable=placeable, now=now),
        demand=demand,
        statistics=statistics,
        supply=supply,
        pressure=pressure,
        forced=floor > demand.replicas,
        veto=veto,
        stabilized=stable.limit is Limit.STABILIZED,
        settings=settings,
        pending=fleet.pending,
        placeable=placeable,
    )
    return _conclude(snapshot, state, found, now)


def _cautious_demand(
    snapshot: FleetSnapshot, fleet: FleetView, statistics: RequestStatistics, supply: Supply
) -> Demand:
    """What a smaller fleet would have to hold, with room to spare and silent pods taken as full."""
    targets = snapshot.settings.targets.for_scale_down()
    load = fleet.cautious_load(tokens_if_missing=targets.kv_utilization * supply.kv_tokens)
    return replicas_needed(load, statistics, supply, targets)


def _limited(
    snapshot: FleetSnapshot,
    state: AutoscalerState,
    wanted: int,
    *,
    placeable: int | None,
    now: float,
) -> Size:
    """The wanted size within the policies, the room on the nodes and the bounds."""
    settings, current = snapshot.settings, snapshot.current_replicas
    stepped = apply_policies(wanted, settings, state.replica_counts, current=current, now=now)
    clamped = clamp(stepped.replicas, settings, current=current, placeable=placeable)
    return stepped if clamped.limit is Limit.NONE else clamped


def _placeable(snapshot: FleetSnapshot, fleet: FleetView) -> int | None:
    """Replicas the nodes have room for, and the few pending ones that ask for more nodes."""
    if snapshot.free_slots is None:
        return None
    return fleet.placed + snapshot.free_slots + snapshot.settings.max_pending_replicas


def _conclude(
    snapshot: FleetSnapshot, state: AutoscalerState, found: explain.Findings, now: float
) -> Decision:
    reason, message = explain.reason(found), explain.message(found)
    desired = _desired(snapshot, found.size)
    event = _event(snapshot, desired, reason, message, now)
    return Decision(
        desired_replicas=desired,
        recommended_replicas=found.size.replicas,
        current_replicas=found.current,
        binding=explain.binding(found),
        reason=reason,
        message=message,
        valid=True,
        conditions=explain.conditions(found),
        demand=found.demand,
        state=replace(state, history=remember_event(state.history, event)),
    )


def _desired(snapshot: FleetSnapshot, size: Size) -> int:
    advisory = snapshot.settings.mode is AutoscalingMode.ADVISORY
    return snapshot.current_replicas if advisory else size.replicas


def _event(
    snapshot: FleetSnapshot, desired: int, reason: str, message: str, now: float
) -> ScaleEvent | None:
    if desired == snapshot.current_replicas:
        return None
    return ScaleEvent(now, snapshot.current_replicas, desired, reason, message)


def _recommend(
    snapshot: FleetSnapshot, state: AutoscalerState, newest: Recommendation
) -> AutoscalerState:
    kept = remember_recommendation(state.recommendations, newest, snapshot.settings)
    return replace(state, recommendations=kept)
