"""Whether the replicas that are wanted find a place on what is free now."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagefleet_operator.manifests.names import OWNER_LABEL, PLAN_HASH_LABEL
from pagefleet_operator.manifests.placement import pod_resources
from pagefleet_operator.planning.inventory import (
    Inventory,
    Node,
    Resources,
    is_finished,
    pod_requests,
)
from pagefleet_operator.planning.serving_plan import ServingPlan
from pagefleet_operator.spec import InferenceDeployment

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class CapacityCheck:
    """`fits_replicas`: replicas of the plan that run or could run, once older plans' pods left.

    `room`: replicas that could start now beside everything that runs.
    """

    ok: bool
    message: str
    fits_replicas: int
    room: int


def check_capacity(
    infd: InferenceDeployment,
    plan: ServingPlan,
    replicas: int,
    inventory: Inventory,
    pods: Sequence[Mapping[str, Any]],
) -> CapacityCheck:
    """`pods`: those of the whole cluster or of this object; others are passed over."""
    need = pod_resources(plan)
    nodes = _places(infd, plan, inventory)
    own = [pod for pod in pods if _is_own(pod, infd) and not is_finished(pod)]
    running = sum(1 for pod in own if _on_node(pod) and _plan_hash(pod) == plan.plan_hash)
    leaving = _by_node([pod for pod in own if _plan_hash(pod) != plan.plan_hash])
    free_now = sum(need.times_held_by(node.free) for node in nodes)
    free_then = sum(
        need.times_held_by(node.free + leaving.get(node.name, Resources())) for node in nodes
    )
    fits = (running + free_then) // plan.pods_per_replica
    room = free_now // plan.pods_per_replica
    if fits >= replicas:
        return CapacityCheck(True, f"room for {fits} replicas, {replicas} wanted", fits, room)
    message = _shortfall(plan, need, nodes, replicas=replicas, fits=fits)
    return CapacityCheck(False, message, fits, room)


def _places(infd: InferenceDeployment, plan: ServingPlan, inventory: Inventory) -> list[Node]:
    return [
        node
        for node in inventory.candidates(infd.spec)
        if node.available
        and (not plan.on_gpu or node.product == plan.memory.accelerator.name)
        and (not plan.needs_fast_bf16 or node.fast_bf16)
    ]


def _is_own(pod: Mapping[str, Any], infd: InferenceDeployment) -> bool:
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    same_namespace = metadata.get("namespace", infd.namespace) == infd.namespace
    return same_namespace and labels.get(OWNER_LABEL) == infd.name and PLAN_HASH_LABEL in labels


def _plan_hash(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["labels"][PLAN_HASH_LABEL])


def _on_node(pod: Mapping[str, Any]) -> bool:
    return bool(pod.get("spec", {}).get("nodeName"))


def _by_node(pods: Sequence[Mapping[str, Any]]) -> dict[str, Resources]:
    held: dict[str, Resources] = {}
    for pod in filter(_on_node, pods):
        node = pod["spec"]["nodeName"]
        held[node] = held.get(node, Resources()) + pod_requests(pod)
    return held


def _shortfall(
    plan: ServingPlan, need: Resources, nodes: Sequence[Node], *, replicas: int, fits: int
) -> str:
    pods = f"{plan.pods_per_replica} pods of " if plan.pods_per_replica > 1 else ""
    wanted = f"{replicas} replicas wanted, {fits} fit; each needs {pods}{_amount(need, plan)}"
    if not nodes:
        return f"{wanted}, and no node that could hold it is ready"
    best = max(nodes, key=lambda node: _closeness(need, node.free))
    missing = Resources(
        gpus=max(0, need.gpus - best.free.gpus),
        cpu_millis=max(0, need.cpu_millis - best.free.cpu_millis),
        memory_bytes=max(0, need.memory_bytes - best.free.memory_bytes),
    )
    return (
        f"{wanted}; the best node, {best.name}, has {_amount(best.free, plan)} free: "
        f"short of {_missing(missing)}"
    )


def _closeness(need: Resources, free: Resources) -> tuple[int, int, int]:
    return (
        min(0, free.gpus - need.gpus),
        min(0, free.memory_bytes - need.memory_bytes),
        min(0, free.cpu_millis - need.cpu_millis),
    )


def _amount(amount: Resources, plan: ServingPlan) -> str:
    parts = [f"{amount.gpus} {plan.memory.accelerator.name}"] if plan.on_gpu else []
    parts += [f"{amount.cpu_millis / 1000:g} cores", f"{amount.memory_bytes / _GIB:.1f} GiB"]
    return ", ".join(parts)


def _missing(missing: Resources) -> str:
    parts = [
        f"{missing.gpus} GPUs" if missing.gpus else "",
        f"{missing.cpu_millis / 1000:g} cores" if missing.cpu_millis else "",
        f"{missing.memory_bytes / _GIB:.1f} GiB memory" if missing.memory_bytes else "",
    ]
    return ", ".join(part for part in parts if part) or "a node for the remaining pods"
