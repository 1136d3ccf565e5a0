"""What demand does not show: pressure that forces a small step up, doubts that veto shrinking."""

import math
from dataclasses import dataclass, replace

from pagefleet_operator.autoscaling.fleet import FleetView
from pagefleet_operator.autoscaling.snapshot import FleetSnapshot
from pagefleet_operator.autoscaling.state import AutoscalerState, ReplicaCount

PRESSURE_WINDOW_SECONDS = 60.0
PREEMPTIONS_TO_STEP_UP = 1.0  # per minute and replica
PREEMPTIONS_TO_VETO = 0.1  # per minute and replica
MIN_OBSERVATIONS = 10
MAX_MISSING_TO_SHRINK = 0.2
DEFAULT_TTFT_SECONDS = 2.0
STEP_SHARE = 0.1
# An engine that is too slow with a batch this empty is not helped by a smaller batch.
MIN_BATCH_SHARE_FOR_ITL = 0.25


@dataclass(frozen=True, slots=True)
class Latency:
    """p90 of the last minute; None without an objective or with too few requests."""

    ttft_seconds: float | None
    itl_seconds: float | None
    ttft_violated: bool
    itl_violated: bool
    itl_attainable: bool


@dataclass(frozen=True, slots=True)
class Pressure:
    """Why the fleet must grow by one bounded step whatever its demand; all False: it need not."""

    preempting: bool
    slow: bool
    latency: Latency

    @property
    def any(self) -> bool:
        return self.preempting or self.slow


@dataclass(frozen=True, slots=True)
class Veto:
    reason: str
    message: str


def watch_pressure(
    state: AutoscalerState, snapshot: FleetSnapshot, fleet: FleetView, now: float
) -> AutoscalerState:
    """Remember since when preemptions, or latencies, have been too high without a break."""
    if state.serving is None or state.serving.replicas != fleet.serving:
        state = replace(state, serving=ReplicaCount(now, fleet.serving))
    rate = _per_minute_and_replica(state, fleet, since=_pressure_since(state, now), now=now)
    slow = _needs_capacity(read_latency(state, snapshot, fleet, now), fleet)
    return replace(
        state,
        preempting_since=_since(state.preempting_since, rate > PREEMPTIONS_TO_STEP_UP, now),
        slow_since=_since(state.slow_since, slow, now),
    )


def read_pressure(
    state: AutoscalerState, snapshot: FleetSnapshot, fleet: FleetView, now: float
) -> Pressure:
    """Pressure counts when at least two evaluations in a row have seen it."""
    return Pressure(
        preempting=state.preempting_since is not None and state.preempting_since < now,
        slow=state.slow_since is not None and state.slow_since < now,
        latency=read_latency(state, snapshot, fleet, now),
    )


def step_up(fleet: FleetView) -> int:
    """One replica more than serve now, or a tenth more: bounded, and never on top of itself."""
    return fleet.serving + max(1, math.ceil(STEP_SHARE * fleet.serving))


def find_veto(
    state: AutoscalerState, snapshot: FleetSnapshot, fleet: FleetView, now: float
) -> Veto | None:
    """The first reason why the fleet must not shrink now."""
    window = snapshot.settings.behavior.scale_down.stabilization_window_seconds
    vetoes = (
        _unobserved(state, window, now),
        _rollout(snapshot),
        _blind(fleet),
        _queueing(snapshot, fleet),
        _preempting(state, fleet, max(window, PRESSURE_WINDOW_SECONDS), now),
    )
    return next((veto for veto in vetoes if veto is not None), None)


def read_latency(
    state: AutoscalerState, snapshot: FleetSnapshot, fleet: FleetView, now: float
) -> Latency:
    targets = snapshot.settings.targets
    flow = state.flow_since(_pressure_since(state, now))
    ttft, itl = (
        histogram.quantile(0.9) if histogram.total >= MIN_OBSERVATIONS else None
        for histogram in (flow.time_to_first_token, flow.inter_token_latency)
    )
    itl_violated = _over(itl, targets.itl_p90_seconds)
    return Latency(
        ttft_seconds=ttft,
        itl_seconds=itl,
        ttft_violated=_over(ttft, targets.ttft_p90_seconds),
        itl_violated=itl_violated,
        itl_attainable=not itl_violated or _batch_is_filled(snapshot, fleet),
    )


def _pressure_since(state: AutoscalerState, now: float) -> float:
    """The last minute, but nothing from before the present number of pods was serving."""
    changed_at = state.serving.at if state.serving else now
    return max(now - PRESSURE_WINDOW_SECONDS, changed_at)


def _per_minute_and_replica(
    state: AutoscalerState, fleet: FleetView, *, since: float, now: float
) -> float:
    """Preemptions; a span under a minute counts as one, so that a single one is no rate."""
    watched = state.observed_seconds(now - since, now)
    minutes = max(watched, PRESSURE_WINDOW_SECONDS) / 60
    return state.flow_since(since).preemptions / minutes / max(1, len(fleet.ready))


def _since(since: float | None, holds: bool, now: float) -> float | None:
    if not holds:
        return None
    return now if since is None else since


def _over(value: float | None, target: float | None) -> bool:
    return value is not None and target is not None and value > target


def _batch_is_filled(snapshot: FleetSnapshot, fleet: FleetView) -> bool:
    max_num_seqs = snapshot.capacity.max_num_seqs
    if not max_num_seqs or not fleet.serving:
        return True
    return fleet.load().running / fleet.serving >= MIN_BATCH_SHARE_FOR_ITL * max_num_seqs


def _needs_capacity(latency: Latency, fleet: FleetView) -> bool:
    """First tokens come late because requests queue; later ones because the batch is full."""
    queueing = latency.ttft_violated and fleet.load().waiting > 0
    return queueing or (latency.itl_violated and latency.itl_attainable)


def _unobserved(state: AutoscalerState, window: float, now: float) -> Veto | None:
    watched = state.observed_seconds(window, now)
    if watched >= window:
        return None
    return Veto(
        "WindowNotObserved",
        f"the load has been observed for {watched:.0f} of {window:.0f} seconds",
    )


def _rollout(snapshot: FleetSnapshot) -> Veto | None:
    return Veto("RolloutRunning", "a rollout is running") if snapshot.rollout_running else None


def _blind(fleet: FleetView) -> Veto | None:
    if fleet.missing_share <= MAX_MISSING_TO_SHRINK:
        return None
    return Veto("MetricsMissing", f"{fleet.missing} of {len(fleet.ready)} ready pods are silent")


def _queueing(snapshot: FleetSnapshot, fleet: FleetView) -> Veto | None:
    limit = (snapshot.settings.targets.ttft_p90_seconds or DEFAULT_TTFT_SECONDS) / 2
    oldest = fleet.oldest_waiting_seconds
    if oldest <= limit:
        return None
    return Veto(
        "RequestsWaiting", f"a request has been waiting for {oldest:.1f} s (limit {limit:.1f} s)"
    )


def _preempting(state: AutoscalerState, fleet: FleetView, window: float, now: float) -> Veto | None:
    rate = _per_minute_and_replica(state, fleet, since=now - window, now=now)
    if rate <= PREEMPTIONS_TO_VETO:
        return None
    return Veto("Preempting", f"{rate:.1f} preemptions per minute and replica")
