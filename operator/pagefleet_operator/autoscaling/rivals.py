"""Other autoscalers on an object that is autoscaled already, KEDA's included.

The API server refuses what they write, for replicas and autoscaling exclude each other; so the
fleet goes on as it was, and the conflict is said.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pagefleet_operator.autoscaling.decision import Condition
from pagefleet_operator.kube.resources import INFERENCE_DEPLOYMENTS, Key


def find_rivals(autoscalers: Iterable[Mapping[str, Any]]) -> dict[Key, str]:
    """HorizontalPodAutoscalers by the InferenceDeployment that they target; KEDA makes one too."""
    return {
        Key(body["metadata"]["namespace"], body["spec"]["scaleTargetRef"]["name"]): _name(body)
        for body in autoscalers
        if _targets_ours(body["spec"]["scaleTargetRef"])
    }


def name_rival(conditions: Sequence[Condition], rival: str | None) -> tuple[Condition, ...]:
    """The same conditions; where there is a rival, ScalingActive is about it."""
    if rival is None:
        return tuple(conditions)
    conflict = Condition(
        "ScalingActive",
        "False",
        "AutoscalerConflict",
        f"{rival} targets this object too, and what it writes is refused while spec.autoscaling "
        "is set: delete it, or remove spec.autoscaling to leave the size to it",
    )
    return tuple(conflict if found.type == conflict.type else found for found in conditions)


def _targets_ours(target: Mapping[str, Any]) -> bool:
    group = str(target.get("apiVersion", "")).partition("/")[0]
    return (group, target["kind"]) == (INFERENCE_DEPLOYMENTS.group, INFERENCE_DEPLOYMENTS.kind)


def _name(autoscaler: Mapping[str, Any]) -> str:
    metadata = autoscaler["metadata"]
    for owner in metadata.get("ownerReferences") or ():
        if owner["kind"] == "ScaledObject":
            return f"ScaledObject {owner['name']}"
    return f"HorizontalPodAutoscaler {metadata['name']}"
