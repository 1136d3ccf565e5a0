"""The status of an InferenceDeployment, from what one reconcile found; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagefleet_operator.conditions import Answer, Condition, merge_conditions
from pagefleet_operator.errors import SpecError
from pagefleet_operator.manifests.names import selector_text
from pagefleet_operator.manifests.service import service_url
from pagefleet_operator.model.inspection import Inspection
from pagefleet_operator.planning.backoff import OUT_OF_MEMORY, out_of_memory_advice
from pagefleet_operator.planning.capacity import CapacityCheck
from pagefleet_operator.planning.serving_plan import NO_ACCELERATOR, PlanRefusal, ServingPlan
from pagefleet_operator.spec import InferenceDeployment


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """Replicas as observed: `existing` of all plans; `updated` and `serving` of the present one.

    `ready` counts all plans. `rollout` is the sentence of a rollout under way, "" when there is
    none. `failure` is (reason, message) of an engine that ended by itself, if one did.
    """

    desired: int = 0
    existing: int = 0
    ready: int = 0
    updated: int = 0
    serving: int = 0
    rollout: str = ""
    failure: tuple[str, str] | None = None


def build_status(
    infd: InferenceDeployment,
    *,
    now: str,
    inspection: Inspection,
    inspection_key: str,
    plan: ServingPlan | PlanRefusal | None = None,
    capacity: CapacityCheck | None = None,
    fleet: FleetView | None = None,
    autoscaling: Mapping[str, Any] | None = None,
    scaling_conditions: Sequence[Condition] = (),
    measured: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What is None could not be looked at, and its condition is Unknown; `now` is RFC 3339."""
    fleet = fleet or FleetView()
    conditions = _conditions(infd, inspection, plan, capacity, fleet)
    status: dict[str, Any] = {
        "observedGeneration": infd.generation,
        "replicas": fleet.existing,
        "readyReplicas": fleet.ready,
        "updatedReplicas": fleet.updated,
        "selector": selector_text(infd),
        "url": service_url(infd),
        "conditions": merge_conditions(
            infd.status.get("conditions") or (),
            [*conditions, *scaling_conditions],
            generation=infd.generation,
            now=now,
        ),
    }
    if inspection.shape is not None:
        status["model"] = _model(infd, inspection, inspection_key)
    if isinstance(plan, ServingPlan):
        status["plan"] = plan.to_status()
    elif isinstance(plan, PlanRefusal):
        status["refusal"] = plan.to_status()
    if autoscaling:
        status["autoscaling"] = dict(autoscaling)
    if measured:
        status["measured"] = dict(measured)
    return status


def build_invalid_status(body: Mapping[str, Any], error: SpecError, *, now: str) -> dict[str, Any]:
    """Of an object that does not parse: everything else stays as it was, replicas included."""
    previous = body.get("status") or {}
    generation = int(body["metadata"].get("generation", 0))
    others = [
        Condition(entry["type"], "Unknown", "InvalidSpec", "the spec could not be read")
        for entry in previous.get("conditions") or ()
        if entry["type"] != "Ready"
    ]
    ready = Condition("Ready", "False", "InvalidSpec", str(error))
    return {
        **previous,
        "observedGeneration": generation,
        "conditions": merge_conditions(
            previous.get("conditions") or (), [ready, *others], generation=generation, now=now
        ),
    }


def _model(infd: InferenceDeployment, inspection: Inspection, key: str) -> dict[str, Any]:
    assert inspection.shape is not None, "a succeeded inspection has a shape"
    return {
        "uri": infd.spec.model.uri,
        "revision": inspection.revision,
        "key": key,
        "shape": inspection.shape.to_summary(),
    }


def _conditions(
    infd: InferenceDeployment,
    inspection: Inspection,
    plan: ServingPlan | PlanRefusal | None,
    capacity: CapacityCheck | None,
    fleet: FleetView,
) -> list[Condition]:
    resolved = _model_resolved(inspection)
    fits = _memory_fits(plan)
    room = _capacity_available(plan, capacity)
    workload = _workload_ready(infd, plan, fleet)
    ready = _ready(infd, [resolved, fits, room], workload, fleet)
    return [ready, resolved, fits, room, workload, _progressing(infd, plan, fleet)]


def _model_resolved(inspection: Inspection) -> Condition:
    answers: dict[str, Answer] = {"Succeeded": "True", "Failed": "False"}
    # A pod that only has to run leaves the question open; one that is stuck answers it.
    waiting: Answer = "Unknown" if inspection.reason == "Inspecting" else "False"
    answer = answers.get(inspection.state, waiting)
    return Condition("ModelResolved", answer, inspection.reason, inspection.message)


def _memory_fits(plan: ServingPlan | PlanRefusal | None) -> Condition:
    if plan is None:
        return Condition("MemoryFits", "Unknown", "ModelNotResolved", "the model is not known yet")
    if isinstance(plan, ServingPlan):
        return Condition("MemoryFits", "True", "Fits", _plan_sentence(plan))
    answer: Answer = "Unknown" if plan.reason == NO_ACCELERATOR else "False"
    return Condition("MemoryFits", answer, plan.reason, plan.message)


def _plan_sentence(plan: ServingPlan) -> str:
    limits = plan.memory.limits
    return (
        f"{plan.memory.accelerator.name}, tensor {limits.tensor_parallel_size}, pipeline "
        f"{limits.pipeline_parallel_size}: {plan.memory.kv_tokens} KV tokens, "
        f"{plan.memory.max_full_length_sequences:.1f} requests of {limits.max_model_len} tokens"
    )


def _capacity_available(
    plan: ServingPlan | PlanRefusal | None, capacity: CapacityCheck | None
) -> Condition:
    if isinstance(plan, PlanRefusal) and plan.reason == NO_ACCELERATOR:
        return Condition("CapacityAvailable", "False", plan.reason, plan.message)
    if capacity is None:
        return Condition("CapacityAvailable", "Unknown", "NoPlan", "there is no plan to place")
    if capacity.ok:
        return Condition("CapacityAvailable", "True", "RoomForAll", capacity.message)
    return Condition("CapacityAvailable", "False", "InsufficientCapacity", capacity.message)


def _workload_ready(
    infd: InferenceDeployment, plan: ServingPlan | PlanRefusal | None, fleet: FleetView
) -> Condition:
    counts = f"{fleet.serving} of {fleet.desired} replicas serve the present plan"
    if idle := _idle(infd):
        return Condition("WorkloadReady", "False", *idle)
    if not isinstance(plan, ServingPlan):
        return Condition("WorkloadReady", "False", "NoPlan", f"{fleet.ready} replicas serve")
    if fleet.failure and fleet.serving < fleet.desired:
        reason, message = fleet.failure
        if reason == OUT_OF_MEMORY:
            message += f"; {out_of_memory_advice(infd.spec, plan.backoff)}"
        return Condition("WorkloadReady", "False", reason, f"{counts}; {message}")
    if fleet.desired and fleet.serving >= fleet.desired:
        return Condition("WorkloadReady", "True", "ReplicasReady", counts)
    reason = (
        "RollingOut" if fleet.rollout else "ReplicasStarting" if fleet.desired else "NoReplicas"
    )
    return Condition("WorkloadReady", "False", reason, fleet.rollout or counts)


def _idle(infd: InferenceDeployment) -> tuple[str, str] | None:
    if infd.spec.suspend:
        return "Suspended", "spec.suspend is true: no replica runs"
    if infd.spec.plan_only:
        return "PlanOnly", "spec.sizing.mode is PlanOnly: the plan is in status.plan, nothing runs"
    return None


def _progressing(
    infd: InferenceDeployment, plan: ServingPlan | PlanRefusal | None, fleet: FleetView
) -> Condition:
    if fleet.rollout:
        return Condition("Progressing", "True", "RollingOut", fleet.rollout)
    settled = fleet.existing == fleet.updated == fleet.serving == fleet.desired
    if settled or _idle(infd) and not fleet.existing or not isinstance(plan, ServingPlan):
        return Condition("Progressing", "False", "Settled", "nothing is being changed")
    message = (
        f"{fleet.existing} replicas exist, {fleet.updated} of the present plan, "
        f"{fleet.serving} of them serve; {fleet.desired} wanted"
    )
    return Condition("Progressing", "True", "Scaling", message)


def _ready(
    infd: InferenceDeployment,
    causes: Sequence[Condition],
    workload: Condition,
    fleet: FleetView,
) -> Condition:
    """True only when the present plan serves with every replica that is wanted.

    Else the first cause that is a no, or the first that is open, or what the workload says.
    """
    resolved_and_fits = all(cause.holds for cause in causes[:2])
    if workload.holds and resolved_and_fits:
        return Condition("Ready", "True", "Serving", f"{fleet.serving} replicas serve")
    if idle := _idle(infd):
        return Condition("Ready", "False", *idle)
    no = next((cause for cause in causes if cause.status == "False"), None)
    unknown = next((cause for cause in causes[:2] if cause.status == "Unknown"), None)
    cause = no or unknown or workload
    return Condition("Ready", "False", cause.reason, cause.message)
