"""A fleet of replicas under a policy: nodes with room, cold starts, routing, drains, scrapes."""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from bench.autoscaling_sim.replica import EngineModel, Replica, Sequence
from bench.autoscaling_sim.report import Report
from bench.autoscaling_sim.requests import Request
from pagefleet_operator.autoscaling import (
    AutoscalingSettings,
    FleetSnapshot,
    PodObservation,
    PodState,
    ReplicaCapacity,
)

QUANTUM_SECONDS = 0.5
DRAIN_SECONDS = 300.0


class Policy(Protocol):
    def desired(self, snapshot: FleetSnapshot, now: float) -> int: ...


@dataclass(frozen=True, slots=True)
class Scenario:
    """What happens to the fleet. `slots`: replicas the nodes hold; None: any number."""

    requests: list[Request]
    seconds: float
    settings: AutoscalingSettings
    model: EngineModel = field(default_factory=EngineModel)
    initial_replicas: int = 1
    cold_start_seconds: float = 60.0
    evaluate_every_seconds: float = 15.0
    slots: Callable[[float], int] | None = None
    tell_free_slots: bool = True
    scrape_loss: float = 0.0
    seed: int = 1


@dataclass(slots=True, eq=False)
class Pod:
    name: str
    state: PodState = PodState.PENDING
    due: float = 0.0  # STARTING: when it is ready; DRAINING: when its patience ends
    replica: Replica | None = None

    @property
    def in_flight(self) -> int:
        return self.replica.in_flight if self.replica else 0


class Fleet:
    """`run()` plays a scenario once; the object is not reused."""

    def __init__(self, scenario: Scenario, policy: Policy) -> None:
        self._scenario = scenario
        self._policy = policy
        self._rng = random.Random(scenario.seed)
        self._pods: list[Pod] = []
        self._held: deque[Sequence] = deque()  # nobody was ready
        self._created = 0
        self.desired = scenario.initial_replicas
        self.report = Report(offered=len(scenario.requests), seconds=scenario.seconds)

    def run(self) -> Report:
        scenario = self._scenario
        arrivals = deque(scenario.requests)
        now, next_evaluation = 0.0, scenario.evaluate_every_seconds
        self._resize(now)
        self._place(now, cold_start_seconds=0.0)
        while now < scenario.seconds:
            self._move_pods(now)
            until = now + QUANTUM_SECONDS
            while arrivals and arrivals[0].arrival < until:
                request = arrivals.popleft()
                self._held.append(Sequence(request, request.prompt_tokens))
            self._route()
            self._advance(until)
            now = until
            if now >= next_evaluation:
                next_evaluation += scenario.evaluate_every_seconds
                self._evaluate(now)
        for pod in list(self._pods):
            self._remove(pod)
        return self.report

    def _evaluate(self, now: float) -> None:
        wanted = self._policy.desired(self._snapshot(now), now)
        self.report.count_decision(self.desired, wanted, now)
        self.desired = wanted
        self._resize(now)

    def _snapshot(self, now: float) -> FleetSnapshot:
        scenario = self._scenario
        return FleetSnapshot(
            pods=tuple(self._observe(pod, now) for pod in self._pods),
            current_replicas=self.desired,
            capacity=ReplicaCapacity(
                kv_tokens=scenario.model.kv_tokens,
                max_num_seqs=scenario.model.max_num_seqs,
                cold_start_seconds=scenario.cold_start_seconds,
            ),
            settings=scenario.settings,
            free_slots=self._free_slots(now) if scenario.tell_free_slots else None,
        )

    def _observe(self, pod: Pod, now: float) -> PodObservation:
        lost = self._rng.random() < self._scenario.scrape_loss
        sample = pod.replica.sample(pod.name, now) if pod.replica and not lost else None
        return PodObservation(pod.name, pod.state, sample)

    def _in(self, *states: PodState) -> list[Pod]:
        return [pod for pod in self._pods if pod.state in states]

    def _free_slots(self, now: float) -> int | None:
        if self._scenario.slots is None:
            return None
        used = len(self._pods) - len(self._in(PodState.PENDING))
        return max(0, self._scenario.slots(now) - used)

    def _resize(self, now: float) -> None:
        """Call back the draining, then create; or drain: first the unborn, then the least busy."""
        missing = self.desired - (len(self._pods) - len(self._in(PodState.DRAINING)))
        for pod in self._in(PodState.DRAINING)[: max(0, missing)]:
            pod.state = PodState.READY
            missing -= 1
        for _ in range(missing):
            self._created += 1
            self._pods.append(Pod(f"pod-{self._created}"))
        order = [PodState.PENDING, PodState.STARTING, PodState.READY]
        candidates = [pod for pod in self._pods if pod.state in order]
        candidates.sort(key=lambda pod: (order.index(pod.state), pod.in_flight))
        for pod in candidates[: max(0, -missing)]:
            self._let_go(pod, now)

    def _let_go(self, pod: Pod, now: float) -> None:
        if pod.state is PodState.READY:
            pod.state, pod.due = PodState.DRAINING, now + DRAIN_SECONDS
        else:
            self._remove(pod)

    def _move_pods(self, now: float) -> None:
        for pod in self._in(PodState.STARTING):
            if now >= pod.due:
                pod.state = PodState.READY
                pod.replica = Replica(self._scenario.model, clock=now)
        for pod in self._in(PodState.DRAINING):
            if pod.in_flight == 0 or now >= pod.due:
                self.report.killed += pod.in_flight
                self._remove(pod)
        self._place(now, cold_start_seconds=self._scenario.cold_start_seconds)
        holding = len(self._pods) - len(self._in(PodState.PENDING))
        self.report.replica_seconds += holding * QUANTUM_SECONDS

    def _place(self, now: float, *, cold_start_seconds: float) -> None:
        free = self._free_slots(now)
        for pod in self._in(PodState.PENDING)[:free]:
            pod.state, pod.due = PodState.STARTING, now + cold_start_seconds

    def _remove(self, pod: Pod) -> None:
        self._pods.remove(pod)
        if pod.replica:
            self.report.preemptions += pod.replica.preemptions

    def _route(self) -> None:
        """To the replica with the fewest tokens pinned or queued."""
        replicas = [pod.replica for pod in self._in(PodState.READY) if pod.replica]
        while self._held and replicas:
            least = min(replicas, key=lambda replica: replica.committed_tokens)
            least.submit(self._held.popleft())

    def _advance(self, until: float) -> None:
        for pod in self._pods:
            if pod.replica:
                for sequence in pod.replica.advance(until):
                    self.report.count_finished(sequence)
