"""Load brings replicas, idleness drains them, and no request notices."""

from typing import Any

from e2e.support.fleet import Fleet, is_ready
from e2e.support.load import Load, under_load

FAST_DOWN: dict[str, Any] = {
    "scaleUp": {"stabilizationWindowSeconds": 0},
    "scaleDown": {
        "stabilizationWindowSeconds": 15,
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 5}],
    },
}
SMALL_CACHE = {"accelerator": "CPU", "cpu": "300m", "memory": "3Gi"}


def test_load_scales_up_and_idleness_drains_down(fleet: Fleet) -> None:
    fleet.apply_on_cpu(
        "elastic",
        hardware=SMALL_CACHE,
        sizing={"maxNumSeqs": 2},
        autoscaling={"minReplicas": 1, "maxReplicas": 2, "behavior": FAST_DOWN},
    )
    fleet.wait_ready("elastic")
    assert len(fleet.pods("elastic")) == 1
    load = Load(fleet.url("elastic"), "elastic", workers=10, max_tokens=64, prompt_repeats=8)

    with under_load(load):
        _wait_for_ready_pods(fleet, 2, timeout=240)
        up = fleet.get("elastic")["status"]["autoscaling"]
        assert up["desiredReplicas"] == 2
        assert up["message"]

    _wait_for_ready_pods(fleet, 1, timeout=240)
    assert load.finished > 10
    assert load.failures == []
    scaling = fleet.wait_condition("elastic", "ScalingActive", status="True")
    assert scaling["reason"]


def _wait_for_ready_pods(fleet: Fleet, count: int, *, timeout: float) -> None:
    def reached(_: object) -> bool:
        pods = fleet.pods("elastic")
        return len(pods) == count and all(is_ready(pod) for pod in pods)

    fleet.kubectl.wait_for(
        "infd", "elastic", reached, what=f"{count} ready replicas", timeout=timeout
    )
