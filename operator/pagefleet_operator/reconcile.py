"""reconcile(key): the story of one InferenceDeployment, from its spec to its status.

Level-triggered: everything is read anew from the store, every write is skipped when it would
change nothing, and any step may fail and be tried again from the start.
"""

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pagefleet_operator.autoscaling.rivals import find_rivals, name_rival
from pagefleet_operator.conditions import Condition
from pagefleet_operator.errors import SpecError
from pagefleet_operator.fleet.fleet import Fleet, FleetOutcome
from pagefleet_operator.kube.api_errors import NotFound
from pagefleet_operator.kube.cluster import Cluster
from pagefleet_operator.kube.events import EventRecorder, memory_steps, transitions
from pagefleet_operator.kube.resources import INFERENCE_DEPLOYMENTS, Key, Manifest
from pagefleet_operator.manifests.names import inspection_key
from pagefleet_operator.model.inspection import Inspection
from pagefleet_operator.model.inspector import Inspector
from pagefleet_operator.planning.images import Images
from pagefleet_operator.planning.inventory import Inventory
from pagefleet_operator.planning.serving_plan import PlanRefusal, ServingPlan, make_serving_plan
from pagefleet_operator.process.metrics import OperatorMetrics
from pagefleet_operator.process.workqueue import Result
from pagefleet_operator.spec import InferenceDeployment
from pagefleet_operator.status import build_invalid_status, build_status


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a reconcile works with. `waiting`: keys that freed room should wake."""

    cluster: Cluster
    images: Images
    inspector: Inspector
    inventory: Callable[[], Inventory]
    fleet: Fleet
    events: EventRecorder
    metrics: OperatorMetrics
    waiting: set[Key]


class Reconciler:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def __call__(self, key: Key) -> Result:
        parts = self._parts
        body = parts.cluster.find(key)
        if body is None or "deletionTimestamp" in body["metadata"]:
            return self._forget(key)
        try:
            infd = InferenceDeployment.parse(body)
        except SpecError as error:
            await self._publish(body, build_invalid_status(body, error, now=_now()))
            return Result()
        found = await parts.inspector.inspect(infd)
        plan = self._plan(infd, found.inspection)
        outcome = await self._step(infd, plan)
        self._account(key, outcome)
        await self._publish(body, self._status(infd, found.inspection, plan, outcome))
        resolved = found.inspection.state == "Succeeded"
        await parts.inspector.clean_up(infd, resolved=resolved)
        waits = [w for w in (found.requeue_after, outcome.requeue_after) if w is not None]
        return Result(requeue_after=min(waits, default=None))

    def _plan(
        self, infd: InferenceDeployment, inspection: Inspection
    ) -> ServingPlan | PlanRefusal | None:
        if inspection.shape is None:
            return None
        fleet = self._parts.fleet
        previous = fleet.previous_plan(infd)
        return make_serving_plan(
            infd,
            inspection.shape,
            inspection.revision,
            self._parts.inventory(),
            self._parts.images,
            previous=previous,
            out_of_memory=fleet.out_of_memory(infd, previous),
            spanning=self._parts.cluster.capabilities.lws,
        )

    async def _step(
        self, infd: InferenceDeployment, plan: ServingPlan | PlanRefusal | None
    ) -> FleetOutcome:
        fleet = self._parts.fleet
        if infd.spec.plan_only or (infd.spec.suspend and not isinstance(plan, ServingPlan)):
            return await fleet.stop(infd, plan, self._parts.inventory())
        if isinstance(plan, ServingPlan):
            return await fleet.step(infd, plan, self._parts.inventory())
        return fleet.observe(infd)

    def _status(
        self,
        infd: InferenceDeployment,
        inspection: Inspection,
        plan: ServingPlan | PlanRefusal | None,
        outcome: FleetOutcome,
    ) -> Manifest:
        decision = outcome.decision
        rivals = find_rivals(self._parts.cluster.autoscalers)
        rival = rivals.get(Key(infd.namespace, infd.name))
        conditions = name_rival(decision.conditions if decision else (), rival)
        return build_status(
            infd,
            now=_now(),
            inspection=inspection,
            inspection_key=inspection_key(infd, self._parts.images),
            plan=plan,
            capacity=outcome.capacity,
            fleet=outcome.view,
            measured=outcome.measured,
            autoscaling=decision.to_status() if decision else _kept_autoscaling(infd),
            scaling_conditions=[
                Condition(c.type, c.status, c.reason, c.message) for c in conditions
            ],
        )

    async def _publish(self, body: Manifest, status: Manifest) -> None:
        """Write the status when it says something new, and tell each transition as an event."""
        before = body.get("status") or {}
        status = _as_kept(status)
        if status == before:
            return
        metadata = body["metadata"]
        patch = {
            "apiVersion": INFERENCE_DEPLOYMENTS.api_version,
            "kind": INFERENCE_DEPLOYMENTS.kind,
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
            "status": status,
        }
        try:
            await self._parts.cluster.apply(patch, subresource="status")
        except NotFound:
            return
        happenings = transitions(before.get("conditions") or (), status["conditions"])
        steps = memory_steps(before.get("plan"), status.get("plan"))
        await self._parts.events.record(body, [*steps, *happenings])

    def _account(self, key: Key, outcome: FleetOutcome) -> None:
        short = outcome.capacity is not None and not outcome.capacity.ok
        if short or outcome.view.rollout:
            self._parts.waiting.add(key)
        else:
            self._parts.waiting.discard(key)
        if outcome.applied is not None:
            self._parts.metrics.count_writes(outcome.applied)

    def _forget(self, key: Key) -> Result:
        """Owner references remove the children."""
        self._parts.inspector.forget(key)
        self._parts.fleet.forget(key)
        self._parts.waiting.discard(key)
        return Result()


def _kept_autoscaling(infd: InferenceDeployment) -> Mapping[str, Any] | None:
    """While nothing is decided (suspended, no plan) the history and the size are kept."""
    return infd.status.get("autoscaling") if infd.spec.autoscaling else None


def _as_kept(value: Any) -> Any:
    """As the server gives it back: lists for tuples, and no fields without a value."""
    if isinstance(value, Mapping):
        return {name: _as_kept(item) for name, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_as_kept(item) for item in value]
    return value


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
