"""AutoscalerState: what one decision leaves to the next; immutable, bounded in size."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from pagefleet_operator.autoscaling.sample import Counters, EngineSample
from pagefleet_operator.autoscaling.snapshot import FleetSnapshot, PodObservation, PodState

HISTORY_LENGTH = 5
STATISTICS_WINDOW_SECONDS = 180.0
# After a longer silence of the controller itself, its windows no longer describe the fleet.
MAX_EVALUATION_GAP_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Flow:
    """What the counters of some pods grew by between two moments."""

    start: float
    end: float
    growth: Counters
    pods: int = 1

    def share_since(self, since: float) -> float:
        """The part of its span that lies after `since`."""
        return max(0.0, self.end - max(self.start, since)) / (self.end - self.start)


@dataclass(frozen=True, slots=True)
class Recommendation:
    at: float
    up: int
    down: int


@dataclass(frozen=True, slots=True)
class ReplicaCount:
    """The size of the fleet from `at` on."""

    at: float
    replicas: int


@dataclass(frozen=True, slots=True)
class ScaleEvent:
    at: float
    from_replicas: int
    to_replicas: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class AutoscalerState:
    observing_since: float | None = None
    evaluated_at: float | None = None
    samples: Mapping[str, EngineSample] = field(default_factory=lambda: MappingProxyType({}))
    newborn: frozenset[str] = frozenset()  # pods seen before they could have counted anything
    flows: tuple[Flow, ...] = ()
    recommendations: tuple[Recommendation, ...] = ()
    replica_counts: tuple[ReplicaCount, ...] = ()
    serving: ReplicaCount | None = None  # the number of serving pods, and since when
    preempting_since: float | None = None
    slow_since: float | None = None
    history: tuple[ScaleEvent, ...] = ()

    def flow_since(self, since: float) -> Counters:
        """Growth after `since`; a flow that began earlier counts by the share that overlaps."""
        total = Counters()
        for flow in self.flows:
            share = flow.share_since(since)
            if share > 0:
                total = total.plus(flow.growth if share == 1.0 else flow.growth.scaled(share))
        return total

    def pod_seconds_since(self, since: float) -> float:
        """How much of the pods' time after `since` the flows cover."""
        return sum(
            flow.pods * (flow.end - flow.start) * flow.share_since(since) for flow in self.flows
        )

    def observed_seconds(self, window: float, now: float) -> float:
        """How much of the last `window` seconds has been observed."""
        return min(window, now - self.observing_since) if self.observing_since is not None else 0.0


def record_samples(state: AutoscalerState, snapshot: FleetSnapshot, now: float) -> AutoscalerState:
    """Take this round's samples in: newest sample per pod, growth since the one before."""
    restarted = state.evaluated_at is None or now - state.evaluated_at > MAX_EVALUATION_GAP_SECONDS
    keep_after = now - max(
        STATISTICS_WINDOW_SECONDS,
        snapshot.settings.behavior.scale_down.stabilization_window_seconds,
    )
    flows = [flow for flow in state.flows if flow.end > keep_after]
    return replace(
        state,
        observing_since=now if restarted else state.observing_since,
        evaluated_at=now,
        samples=MappingProxyType(_newest_samples(state.samples, snapshot.pods)),
        newborn=_newborn(state.newborn, snapshot.pods),
        flows=(*flows, *_new_flows(state, snapshot.pods)),
        replica_counts=_count_replicas(state.replica_counts, snapshot, now),
    )


def remember_event(
    history: tuple[ScaleEvent, ...], event: ScaleEvent | None
) -> tuple[ScaleEvent, ...]:
    """Append a change of size, unless it is the last one still waiting to be carried out."""
    if event is None:
        return history
    if history:
        last = history[-1]
        if (last.from_replicas, last.to_replicas) == (event.from_replicas, event.to_replicas):
            return history
    return (*history, event)[-HISTORY_LENGTH:]


def _newest_samples(
    known: Mapping[str, EngineSample], pods: Iterable[PodObservation]
) -> dict[str, EngineSample]:
    newest = {}
    for pod in pods:
        sample = pod.sample or known.get(pod.name)
        if sample is not None:
            newest[pod.name] = sample
    return newest


def _newborn(known: frozenset[str], pods: Iterable[PodObservation]) -> frozenset[str]:
    """Pods that this controller saw start, and that have not reported yet."""
    return frozenset(
        pod.name
        for pod in pods
        if pod.sample is None
        and (pod.name in known or pod.state in (PodState.PENDING, PodState.STARTING))
    )


def _new_flows(state: AutoscalerState, pods: Iterable[PodObservation]) -> list[Flow]:
    """One flow per span of time, all pods with the same span together."""
    flows: dict[tuple[float, float], Flow] = {}
    for pod in pods:
        flow = _pod_flow(state, pod)
        if flow is None:
            continue
        span = (flow.start, flow.end)
        if span in flows:
            known = flows[span]
            flow = Flow(*span, known.growth.plus(flow.growth), known.pods + 1)
        flows[span] = flow
    return list(flows.values())


def _pod_flow(state: AutoscalerState, pod: PodObservation) -> Flow | None:
    """Growth since the pod's last sample, or since it was born; None if neither is known."""
    if pod.sample is None:
        return None
    before = state.samples.get(pod.name)
    if before is None and pod.name not in state.newborn:
        return None  # its counters may be hours old: only a baseline
    start = before.scraped_at if before else state.evaluated_at
    if start is None or start >= pod.sample.scraped_at:
        return None
    growth = pod.sample.counters.since(before.counters if before else Counters())
    return Flow(start, pod.sample.scraped_at, growth)


def _count_replicas(
    counts: tuple[ReplicaCount, ...], snapshot: FleetSnapshot, now: float
) -> tuple[ReplicaCount, ...]:
    """Keep each change of size, and the last one before the longest policy period."""
    if not counts or counts[-1].replicas != snapshot.current_replicas:
        counts = (*counts, ReplicaCount(now, snapshot.current_replicas))
    behavior = snapshot.settings.behavior
    policies = (*behavior.scale_up.policies, *behavior.scale_down.policies)
    longest = max((policy.period_seconds for policy in policies), default=0.0)
    while len(counts) > 1 and counts[1].at <= now - longest:
        counts = counts[1:]
    return counts
