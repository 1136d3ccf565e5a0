"""Where engine pods may run and what they reserve there."""

import math
from typing import Any

from pagefleet_operator.manifests.names import selector_labels
from pagefleet_operator.planning.inventory import (
    BF16_LABELS,
    GPU_RESOURCE,
    GPU_TAINT,
    PRODUCT_LABEL,
    Resources,
)
from pagefleet_operator.planning.serving_plan import ServingPlan
from pagefleet_operator.spec import InferenceDeployment
from pagefleet_operator.spec.quantity import parse_quantity

CPU_MILLIS_PER_GPU = 2000  # HTTP, tokenizer and the scheduler's step beside each device


def pod_resources(plan: ServingPlan) -> Resources:
    """What one engine pod reserves."""
    if plan.on_gpu:
        cpu = CPU_MILLIS_PER_GPU * plan.gpus_per_pod
    else:
        cpu = int(parse_quantity(plan.cpu) * 1000)
    return Resources(
        gpus=plan.gpus_per_pod, cpu_millis=cpu, memory_bytes=plan.memory.host_memory_bytes
    )


def container_resources(plan: ServingPlan) -> dict[str, Any]:
    """On a CPU the memory limit is the budget that the plan divides.

    Cores are asked for and never limited: a start may use what is idle, and throttled steps would
    only hold requests up.
    """
    need = pod_resources(plan)
    memory = {"memory": str(need.memory_bytes)}
    devices = {GPU_RESOURCE: str(need.gpus)} if plan.on_gpu else {}
    return {
        "requests": {"cpu": f"{need.cpu_millis}m", **memory, **devices},
        "limits": devices or memory,
    }


def thread_count(plan: ServingPlan) -> int:
    return max(1, math.ceil(parse_quantity(plan.cpu)))


def build_placement(infd: InferenceDeployment, plan: ServingPlan) -> dict[str, Any]:
    """Parts of a pod spec: node selector, affinity, toleration and spread."""
    selector = dict(infd.spec.hardware_or_default.node_selector or {})
    placement: dict[str, Any] = {"topologySpreadConstraints": [_spread(infd)]}
    if plan.on_gpu:
        selector[PRODUCT_LABEL] = plan.memory.accelerator.name
        placement["tolerations"] = [{"key": GPU_TAINT, "operator": "Exists"}]
    elif plan.needs_fast_bf16:
        placement["affinity"] = {"nodeAffinity": _fast_bf16_nodes()}
    if selector:
        placement["nodeSelector"] = selector
    return placement


def _spread(infd: InferenceDeployment) -> dict[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": selector_labels(infd)},
    }


def _fast_bf16_nodes() -> dict[str, Any]:
    terms = [
        {"matchExpressions": [{"key": label, "operator": "In", "values": ["true"]}]}
        for label in BF16_LABELS
    ]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
