"""One step of a fleet towards its plan: decide sizes, drain, apply, prune."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagefleet_operator.autoscaling import Decision
from pagefleet_operator.fleet.crash import read_out_of_memory
from pagefleet_operator.fleet.drainer import Drainer
from pagefleet_operator.fleet.measure import LedgerReader
from pagefleet_operator.fleet.replicas import read_workloads
from pagefleet_operator.fleet.scaler import FleetFacts, Scaler
from pagefleet_operator.fleet.state import FleetState
from pagefleet_operator.kube.apply import ApplyResult, apply, difference, keep_pods_as_they_are
from pagefleet_operator.kube.cluster import Cluster
from pagefleet_operator.kube.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    LEADER_WORKER_SETS,
    PODS,
    Key,
    Manifest,
)
from pagefleet_operator.manifests import build_manifests
from pagefleet_operator.manifests.names import config_map_name, workload_name
from pagefleet_operator.planning.capacity import CapacityCheck, check_capacity
from pagefleet_operator.planning.images import Images
from pagefleet_operator.planning.inventory import Inventory
from pagefleet_operator.planning.serving_plan import PlanRefusal, ServingPlan
from pagefleet_operator.spec import InferenceDeployment
from pagefleet_operator.status import FleetView

_DRAIN_POLL_SECONDS = 2.0
_ROLLOUT_POLL_SECONDS = 10.0
_CAPACITY_POLL_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOutcome:
    """What one step found and did, for the status and for the queue."""

    view: FleetView
    capacity: CapacityCheck | None = None
    decision: Decision | None = None
    measured: Mapping[str, Any] | None = None
    applied: ApplyResult | None = None
    requeue_after: float | None = None


class Fleet:
    def __init__(
        self,
        cluster: Cluster,
        images: Images,
        *,
        drainer: Drainer,
        scaler: Scaler,
        ledgers: LedgerReader,
        autoscale_seconds: float,
    ) -> None:
        self._cluster = cluster
        self._images = images
        self._drainer = drainer
        self._scaler = scaler
        self._ledgers = ledgers
        self._autoscale_seconds = autoscale_seconds

    def previous_plan(self, infd: InferenceDeployment) -> Mapping[str, Any] | None:
        """status.plan, or the ConfigMap's copy where a refusal in between removed it."""
        plan: Mapping[str, Any] | None = infd.status.get("plan")
        if plan is not None:
            return plan
        kept = self._cluster.store.get(CONFIG_MAPS, infd.namespace, config_map_name(infd))
        if kept is None:
            return None
        stored: Mapping[str, Any] = json.loads(kept["data"]["plan.json"])
        return stored

    def out_of_memory(
        self, infd: InferenceDeployment, plan: Mapping[str, Any] | None
    ) -> str | None:
        """What an engine of this status.plan said when it died of it, if one did."""
        if plan is None:
            return None
        pods = self._cluster.store.children(Key(infd.namespace, infd.name), PODS)
        return read_out_of_memory(pods, plan_hash=str(plan["hash"]))

    def observe(self, infd: InferenceDeployment) -> FleetOutcome:
        """Without a plan nothing is changed: what serves goes on serving."""
        return FleetOutcome(view=self._state(infd).view())

    async def stop(
        self,
        infd: InferenceDeployment,
        plan: ServingPlan | PlanRefusal | None,
        inventory: Inventory,
    ) -> FleetOutcome:
        """Nothing shall run: drain all, then remove what is left; say whether the plan has room."""
        state = self._state(infd)
        sizes = await self._resize(infd, state, {})
        await self._patch_sizes(state, sizes)
        applied = await self._apply(infd, [], state) if state.is_empty else None
        capacity = None
        if isinstance(plan, ServingPlan):
            wanted = infd.spec.initial_replicas
            capacity = check_capacity(infd, plan, wanted, inventory, state.pods)
        return FleetOutcome(
            view=state.view(),
            capacity=capacity,
            applied=applied,
            requeue_after=None if state.is_empty else _DRAIN_POLL_SECONDS,
        )

    async def step(
        self, infd: InferenceDeployment, plan: ServingPlan, inventory: Inventory
    ) -> FleetOutcome:
        if plan.pods_per_replica > 1:
            name = workload_name(infd, plan.plan_hash)
            await self._cluster.refresh(LEADER_WORKER_SETS, infd.namespace, name)
        state = self._state(infd)
        decision = await self._decide(infd, plan, inventory, state)
        desired = decision.desired_replicas if decision else infd.spec.initial_replicas
        capacity = check_capacity(infd, plan, desired, inventory, state.pods)
        rollout = state.next_rollout(infd, plan, desired=desired, room=capacity.room)
        sizes = await self._resize(infd, state, rollout.targets)
        size = sizes.pop(plan.plan_hash, rollout.targets[plan.plan_hash])
        applied = await self._apply(infd, self._manifests(infd, plan, size), state)
        await self._patch_sizes(state, sizes)
        waits = (
            (_DRAIN_POLL_SECONDS, state.is_draining or state.shrinks(rollout.targets)),
            (_ROLLOUT_POLL_SECONDS, rollout.running),
            (_CAPACITY_POLL_SECONDS, not capacity.ok),
            (self._autoscale_seconds, decision is not None),
        )
        return FleetOutcome(
            view=state.view(plan_hash=plan.plan_hash, desired=desired, rollout=rollout.message),
            capacity=capacity,
            decision=decision,
            measured=await self._ledgers.measured(infd, plan.plan_hash, state.replicas),
            applied=applied,
            requeue_after=min((wait for wait, applies in waits if applies), default=None),
        )

    def forget(self, key: Key) -> None:
        self._scaler.forget(key)
        self._ledgers.forget(key)

    def _state(self, infd: InferenceDeployment) -> FleetState:
        key = Key(infd.namespace, infd.name)
        pods = self._cluster.store.children(key, PODS)
        workloads = read_workloads(self._cluster.store.children(key), pods)
        return FleetState(workloads, tuple(pods))

    async def _decide(
        self, infd: InferenceDeployment, plan: ServingPlan, inventory: Inventory, state: FleetState
    ) -> Decision | None:
        if infd.spec.autoscaling is None or infd.spec.suspend:
            return None
        facts = FleetFacts(
            plan=plan,
            replicas=state.replicas,
            free_slots=check_capacity(infd, plan, 0, inventory, state.pods).room,
            rollout_running=state.is_rolling(plan.plan_hash),
        )
        return await self._scaler.decide(infd, facts)

    async def _resize(
        self, infd: InferenceDeployment, state: FleetState, targets: Mapping[str, int]
    ) -> dict[str, int]:
        """Sizes to set now: growth at once, shrinking as far as drains have come."""
        sizes = {}
        for workload in state.workloads:
            target = targets.get(workload.plan_hash, 0)
            size = await self._drainer.shrink(
                workload, target, timeout_seconds=infd.spec.drain_seconds
            )
            sizes[workload.plan_hash] = max(size, target)
        return sizes

    def _manifests(self, infd: InferenceDeployment, plan: ServingPlan, size: int) -> list[Manifest]:
        kind = LEADER_WORKER_SETS if plan.pods_per_replica > 1 else DEPLOYMENTS
        name = workload_name(infd, plan.plan_hash)
        live = self._cluster.store.get(kind, infd.namespace, name)
        manifests = build_manifests(
            infd,
            plan,
            replicas=size,
            capabilities=self._cluster.capabilities,
            images=self._images,
        )
        return [
            keep_pods_as_they_are(manifest, live) if manifest["kind"] == kind.kind else manifest
            for manifest in manifests
        ]

    async def _apply(
        self, infd: InferenceDeployment, manifests: Sequence[Manifest], state: FleetState
    ) -> ApplyResult:
        """Workloads of earlier plans stay until they are empty."""
        kept = state.busy_names() - {manifest["metadata"]["name"] for manifest in manifests}
        live = [
            child
            for child in self._cluster.store.children(Key(infd.namespace, infd.name))
            if child["kind"] != PODS.kind and child["metadata"]["name"] not in kept
        ]
        return await apply(self._cluster, difference(manifests, live, owner_uid=infd.uid))

    async def _patch_sizes(self, state: FleetState, sizes: Mapping[str, int]) -> None:
        for workload in state.workloads:
            size = sizes.get(workload.plan_hash, workload.size)
            if size != workload.size:
                await self._cluster.patch(workload.body, {"spec": {"replicas": size}})
