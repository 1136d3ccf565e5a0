"""The autoscaler's loop: scrape, decide, remember, for one InferenceDeployment at a time.

Windows live in memory. A new leader starts from status.autoscaling: the size and the history are
kept, and nothing shrinks before a whole window was seen.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from pagefleet_operator.autoscaling import (
    AutoscalerState,
    Decision,
    FleetSnapshot,
    PodObservation,
    PodState,
    ReplicaCapacity,
    decide,
    restore_state,
    settings_from_spec,
)
from pagefleet_operator.fleet.observe import Scrape, ScrapeTarget, scrape
from pagefleet_operator.fleet.replicas import Replica
from pagefleet_operator.kube.resources import Key
from pagefleet_operator.manifests.names import ENGINE_PORT
from pagefleet_operator.planning.serving_plan import ServingPlan
from pagefleet_operator.spec import InferenceDeployment


@dataclass(slots=True)
class _Memory:
    """Of one key. `size` is what the fleet is driven to."""

    state: AutoscalerState
    size: int
    decided_at: float | None = None
    decision: Decision | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFacts:
    """What a decision needs beside the spec. `free_slots`: replicas that fit the nodes now."""

    plan: ServingPlan
    replicas: Sequence[Replica] = field(default=())
    free_slots: int | None = None
    rollout_running: bool = False


class Scaler:
    """`now` is wall-clock seconds, as the samples' clock."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        *,
        interval: float,
        now: Callable[[], float],
        port: int = ENGINE_PORT,
    ) -> None:
        self._session = session
        self._interval = interval
        self._now = now
        self._port = port
        self._memory: dict[Key, _Memory] = {}

    async def decide(self, infd: InferenceDeployment, facts: FleetFacts) -> Decision:
        """A new decision when the interval is over, else the last one."""
        key = Key(infd.namespace, infd.name)
        memory = self._memory.setdefault(key, _seed(infd, facts))
        now = self._now()
        if memory.decision is None or now - (memory.decided_at or 0.0) >= self._interval:
            sampled = await self._scrape(facts.replicas, now)
            snapshot = _snapshot(infd, facts, sampled, current=memory.size)
            memory.decision = decide(snapshot, memory.state, now)
            memory.state = memory.decision.state
            memory.size = memory.decision.desired_replicas
            memory.decided_at = now
        return memory.decision

    def forget(self, key: Key) -> None:
        self._memory.pop(key, None)

    async def _scrape(self, replicas: Sequence[Replica], now: float) -> Scrape:
        targets = [
            ScrapeTarget(replica.name, f"http://{_host(replica.address)}:{self._port}/metrics")
            for replica in replicas
            if replica.address and (replica.ready or replica.draining)
        ]
        return await scrape(self._session, targets, now=now)


def _seed(infd: InferenceDeployment, facts: FleetFacts) -> _Memory:
    """What an earlier leader drove the fleet to, else what is there, else the least."""
    assert infd.spec.autoscaling is not None, "only asked for objects that are autoscaled"
    status: Mapping[str, Any] = infd.status.get("autoscaling") or {}
    alive = sum(not replica.draining for replica in facts.replicas)
    size = status.get("desiredReplicas") or alive or infd.spec.autoscaling.floor
    return _Memory(restore_state(status), int(size))


def _snapshot(
    infd: InferenceDeployment, facts: FleetFacts, sampled: Scrape, *, current: int
) -> FleetSnapshot:
    assert infd.spec.autoscaling is not None, "only asked for objects that are autoscaled"
    pods = tuple(
        PodObservation(replica.name, _state(replica), sampled.sample_of(replica.name))
        for replica in facts.replicas
    )
    return FleetSnapshot(
        pods=pods,
        current_replicas=current,
        capacity=_capacity(facts.plan),
        settings=settings_from_spec(infd.spec.autoscaling),
        free_slots=facts.free_slots,
        rollout_running=facts.rollout_running,
    )


def _capacity(plan: ServingPlan) -> ReplicaCapacity:
    return ReplicaCapacity(
        kv_tokens=plan.memory.kv_tokens,
        max_num_seqs=plan.limits.max_num_seqs,
        cold_start_seconds=float(plan.memory.startup_seconds),
    )


def _state(replica: Replica) -> PodState:
    if replica.draining:
        return PodState.DRAINING
    if replica.ready:
        return PodState.READY
    if replica.crashed:
        return PodState.FAILED
    return PodState.STARTING if replica.scheduled else PodState.PENDING


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
