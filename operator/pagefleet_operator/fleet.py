"""One step of a fleet towards its plan: decide sizes, drain, apply, prune."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagefleet_operator.apply import ApplyResult, apply, difference, keep_pods_as_they_are
from pagefleet_operator.autoscaling import Decision
from pagefleet_operator.capacity import CapacityCheck, check_capacity
from pagefleet_operator.cluster import Cluster
from pagefleet_operator.crash import read_failure
from pagefleet_operator.drainer import Drainer
from pagefleet_operator.images import Images
from pagefleet_operator.inventory import Inventory
from pagefleet_operator.manifests import build_manifests
from pagefleet_operator.manifests.names import config_map_name, workload_name
from pagefleet_operator.measure import LedgerReader
from pagefleet_operator.replicas import Workload, read_workloads
from pagefleet_operator.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    LEADER_WORKER_SETS,
    PODS,
    Key,
    Manifest,
)
from pagefleet_operator.rollout import Revision, Rollout, RolloutLimits, plan_rollout
from pagefleet_operator.scaler import FleetFacts, Scaler
from pagefleet_operator.serving_plan import PlanRefusal, ServingPlan
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

    def observe(self, infd: InferenceDeployment) -> FleetOutcome:
        """Without a plan nothing is changed: what serves goes on serving."""
        workloads = self._workloads(infd)
        return FleetOutcome(view=_view(workloads, plan_hash="", desired=0, rollout=""))

    async def stop(
        self,
        infd: InferenceDeployment,
        plan: ServingPlan | PlanRefusal | None,
        inventory: Inventory,
    ) -> FleetOutcome:
        """Nothing shall run: drain all, then remove what is left; say whether the plan has room."""
        workloads = self._workloads(infd)
        sizes = await self._resize(infd, workloads, {w.plan_hash: 0 for w in workloads})
        await self._patch_sizes(workloads, sizes)
        applied = None
        if not any(workload.replicas or workload.size for workload in workloads):
            applied = await self._apply(infd, [], workloads=())
        view = _view(workloads, plan_hash="", desired=0, rollout="")
        capacity = None
        if isinstance(plan, ServingPlan):
            wanted = infd.spec.initial_replicas
            capacity = check_capacity(infd, plan, wanted, inventory, self._pods(infd))
        return FleetOutcome(
            view=view, capacity=capacity, applied=applied, requeue_after=_poll(workloads)
        )

    async def step(
        self, infd: InferenceDeployment, plan: ServingPlan, inventory: Inventory
    ) -> FleetOutcome:
        if plan.pods_per_replica > 1:
            name = workload_name(infd, plan.plan_hash)
            await self._cluster.refresh(LEADER_WORKER_SETS, infd.namespace, name)
        workloads = self._workloads(infd)
        pods = self._pods(infd)
        rolling = any(w.size and w.plan_hash != plan.plan_hash for w in workloads)
        decision = await self._decide(infd, plan, workloads, inventory, pods, rolling=rolling)
        desired = decision.desired_replicas if decision else infd.spec.initial_replicas
        capacity = check_capacity(infd, plan, desired, inventory, pods)
        rollout = _rollout(infd, plan, workloads, desired=desired, room=capacity.room)
        sizes = await self._resize(infd, workloads, rollout.targets)
        size = sizes.get(plan.plan_hash, rollout.targets[plan.plan_hash])
        applied = await self._apply(infd, self._manifests(infd, plan, size), workloads=workloads)
        await self._patch_sizes([w for w in workloads if w.plan_hash != plan.plan_hash], sizes)
        view = _view(
            workloads, plan_hash=plan.plan_hash, desired=desired, rollout=rollout.message, pods=pods
        )
        return FleetOutcome(
            view=view,
            capacity=capacity,
            decision=decision,
            measured=await self._ledgers.measured(
                infd, plan.plan_hash, [r for w in workloads for r in w.replicas]
            ),
            applied=applied,
            requeue_after=_soonest(
                _poll(workloads),
                _DRAIN_POLL_SECONDS if _shrinks(workloads, rollout.targets) else None,
                _ROLLOUT_POLL_SECONDS if rollout.running else None,
                _CAPACITY_POLL_SECONDS if not capacity.ok else None,
                self._autoscale_seconds if decision else None,
            ),
        )

    def forget(self, key: Key) -> None:
        self._scaler.forget(key)
        self._ledgers.forget(key)

    def _workloads(self, infd: InferenceDeployment) -> tuple[Workload, ...]:
        children = self._cluster.store.children(Key(infd.namespace, infd.name))
        return read_workloads(children, self._pods(infd))

    def _pods(self, infd: InferenceDeployment) -> list[Manifest]:
        return self._cluster.store.children(Key(infd.namespace, infd.name), PODS)

    async def _decide(
        self,
        infd: InferenceDeployment,
        plan: ServingPlan,
        workloads: Sequence[Workload],
        inventory: Inventory,
        pods: Sequence[Manifest],
        *,
        rolling: bool,
    ) -> Decision | None:
        if infd.spec.autoscaling is None or infd.spec.suspend:
            return None
        facts = FleetFacts(
            plan=plan,
            replicas=[replica for workload in workloads for replica in workload.replicas],
            free_slots=check_capacity(infd, plan, 0, inventory, pods).room,
            rollout_running=rolling,
        )
        return await self._scaler.decide(infd, facts)

    async def _resize(
        self,
        infd: InferenceDeployment,
        workloads: Sequence[Workload],
        targets: Mapping[str, int],
    ) -> dict[str, int]:
        """Sizes to set now: growth at once, shrinking as far as drains have come."""
        sizes = {}
        for workload in workloads:
            target = targets.get(workload.plan_hash, 0)
            size = await self._drainer.shrink(
                workload, target, timeout_seconds=infd.spec.drain_seconds
            )
            sizes[workload.plan_hash] = max(size, target)
        return sizes

    def _manifests(self, infd: InferenceDeployment, plan: ServingPlan, size: int) -> list[Manifest]:
        store = self._cluster.store
        kind = LEADER_WORKER_SETS if plan.pods_per_replica > 1 else DEPLOYMENTS
        live = store.get(kind, infd.namespace, workload_name(infd, plan.plan_hash))
        return [
            keep_pods_as_they_are(manifest, live) if manifest["kind"] == kind.kind else manifest
            for manifest in build_manifests(
                infd,
                plan,
                replicas=size,
                capabilities=self._cluster.capabilities,
                images=self._images,
            )
        ]

    async def _apply(
        self,
        infd: InferenceDeployment,
        manifests: Sequence[Manifest],
        *,
        workloads: Sequence[Workload],
    ) -> ApplyResult:
        """Workloads of earlier plans stay until they are empty."""
        busy = {w.body["metadata"]["name"] for w in workloads if w.size or w.replicas}
        wanted = {manifest["metadata"]["name"] for manifest in manifests}
        live = [
            child
            for child in self._cluster.store.children(Key(infd.namespace, infd.name))
            if child["kind"] != PODS.kind
            and not (child["metadata"]["name"] in busy - wanted and _is_workload(child))
        ]
        change = difference(manifests, live, owner_uid=infd.uid)
        return await apply(self._cluster, change)

    async def _patch_sizes(self, workloads: Sequence[Workload], sizes: Mapping[str, int]) -> None:
        for workload in workloads:
            size = sizes[workload.plan_hash]
            if size != workload.size:
                await self._cluster.patch(workload.body, {"spec": {"replicas": size}})


def _is_workload(child: Mapping[str, Any]) -> bool:
    return child["kind"] in (DEPLOYMENTS.kind, LEADER_WORKER_SETS.kind)


def _rollout(
    infd: InferenceDeployment,
    plan: ServingPlan,
    workloads: Sequence[Workload],
    *,
    desired: int,
    room: int,
) -> Rollout:
    revisions = {workload.plan_hash: _revision(workload) for workload in workloads}
    current = revisions.pop(plan.plan_hash, Revision(plan_hash=plan.plan_hash, size=0))
    strategy = infd.spec.rollout_strategy
    limits = RolloutLimits(
        room=room,
        max_surge=strategy.max_surge if strategy else None,
        max_unavailable=strategy.max_unavailable if strategy else None,
    )
    return plan_rollout(current, list(revisions.values()), desired=desired, limits=limits)


def _revision(workload: Workload) -> Revision:
    return Revision(
        plan_hash=workload.plan_hash,
        size=workload.size,
        serving=workload.serving,
        draining=workload.draining,
        unschedulable=workload.unschedulable,
    )


def _view(
    workloads: Sequence[Workload],
    *,
    plan_hash: str,
    desired: int,
    rollout: str,
    pods: Sequence[Manifest] = (),
) -> FleetView:
    current = [workload for workload in workloads if workload.plan_hash == plan_hash]
    return FleetView(
        desired=desired,
        existing=sum(len(workload.replicas) for workload in workloads),
        ready=sum(workload.serving for workload in workloads),
        updated=sum(len(workload.replicas) for workload in current),
        serving=sum(workload.serving for workload in current),
        rollout=rollout,
        failure=read_failure(pods, plan_hash=plan_hash),
    )


def _shrinks(workloads: Sequence[Workload], targets: Mapping[str, int]) -> bool:
    return any(len(w.replicas) > targets.get(w.plan_hash, 0) for w in workloads)


def _poll(workloads: Sequence[Workload]) -> float | None:
    return _DRAIN_POLL_SECONDS if any(workload.draining for workload in workloads) else None


def _soonest(*waits: float | None) -> float | None:
    known = [wait for wait in waits if wait is not None]
    return min(known) if known else None
