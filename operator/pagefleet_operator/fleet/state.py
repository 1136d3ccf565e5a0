"""What exists of one InferenceDeployment's fleet, and the numbers drawn from it; pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from pagefleet_operator.fleet.crash import read_failure
from pagefleet_operator.fleet.replicas import Replica, Workload
from pagefleet_operator.fleet.rollout import Revision, Rollout, RolloutLimits, plan_rollout
from pagefleet_operator.kube.resources import Manifest
from pagefleet_operator.planning.serving_plan import ServingPlan
from pagefleet_operator.spec import InferenceDeployment
from pagefleet_operator.status import FleetView


@dataclass(frozen=True, slots=True)
class FleetState:
    """Workloads of all plans, and every pod of the object, inspections included."""

    workloads: tuple[Workload, ...]
    pods: tuple[Manifest, ...]

    @property
    def replicas(self) -> list[Replica]:
        return [replica for workload in self.workloads for replica in workload.replicas]

    @property
    def is_draining(self) -> bool:
        return any(replica.draining for replica in self.replicas)

    @property
    def is_empty(self) -> bool:
        return not any(workload.size or workload.replicas for workload in self.workloads)

    def is_rolling(self, plan_hash: str) -> bool:
        """Whether a workload of another plan is still to be replaced."""
        return any(w.size and w.plan_hash != plan_hash for w in self.workloads)

    def shrinks(self, targets: Mapping[str, int]) -> bool:
        return any(len(w.replicas) > targets.get(w.plan_hash, 0) for w in self.workloads)

    def busy_names(self) -> set[str]:
        """Workloads that must not be removed yet."""
        return {w.body["metadata"]["name"] for w in self.workloads if w.size or w.replicas}

    def view(self, *, plan_hash: str = "", desired: int = 0, rollout: str = "") -> FleetView:
        current = [workload for workload in self.workloads if workload.plan_hash == plan_hash]
        return FleetView(
            desired=desired,
            existing=len(self.replicas),
            ready=sum(workload.serving for workload in self.workloads),
            updated=sum(len(workload.replicas) for workload in current),
            serving=sum(workload.serving for workload in current),
            rollout=rollout,
            failure=read_failure(self.pods, plan_hash=plan_hash),
        )

    def next_rollout(
        self, infd: InferenceDeployment, plan: ServingPlan, *, desired: int, room: int
    ) -> Rollout:
        revisions = {workload.plan_hash: _revision(workload) for workload in self.workloads}
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
