"""What a plan gives up when its engines run out of memory: a few small steps, then a word.

Everything but the share of the memory that is budgeted stays. On a CPU whose memory is derived,
a smaller share of the same need is a larger container.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pagefleet_operator.spec import InferenceDeploymentSpec

OUT_OF_MEMORY = "OutOfMemory"  # reason in an engine's record, and of the condition
MOST_STEPS = 2
_STEPS = {"GPU": 0.03, "CPU": 0.05}


@dataclass(frozen=True, slots=True)
class Backoff:
    """Steps taken so far for one engine image, the share of the memory after them, and why."""

    engine_image: str
    steps: int = 0
    utilization: float | None = None
    cause: str = ""

    def to_status(self) -> dict[str, Any]:
        return {"steps": self.steps, "engineImage": self.engine_image, "message": self.cause}

    def note(self) -> str:
        return (
            f"engines ran out of memory: gpuMemoryUtilization is lowered to {self.utilization:g}, "
            f"step {self.steps} of {MOST_STEPS}; {self.cause}"
        )


def recorded_backoff(previous: Mapping[str, Any], *, engine_image: str) -> Backoff:
    """What `previous` (status.plan) has recorded; another image of the engine starts anew."""
    record = previous.get("backoff")
    if not record or record["engineImage"] != engine_image:
        return Backoff(engine_image)
    return Backoff(engine_image, record["steps"], _utilization(previous), record["message"])


def next_backoff(
    spec: InferenceDeploymentSpec, previous: Mapping[str, Any], taken: Backoff, *, cause: str
) -> Backoff | None:
    """One more step down from `previous`; None when it is pinned or all steps are taken."""
    if spec.sizing_or_default.gpu_memory_utilization or taken.steps >= MOST_STEPS:
        return None
    step = _STEPS[previous["accelerator"]["kind"]]
    lowered = round(_utilization(previous) - step, 4)
    return Backoff(taken.engine_image, taken.steps + 1, lowered, cause)


def out_of_memory_advice(spec: InferenceDeploymentSpec, taken: Backoff) -> str:
    """What to change where no step is left."""
    ways = "lower spec.workload.maxModelLen or spec.sizing.maxNumBatchedTokens"
    on_gpu = spec.hardware_or_default.kind == "GPU"
    larger = "use a larger GPU" if on_gpu else "set a larger spec.hardware.memory"
    pinned = spec.sizing_or_default.gpu_memory_utilization
    if pinned:
        return (
            f"spec.sizing.gpuMemoryUtilization is set to {pinned} and stays: lower it, or remove "
            f"it so that it can be lowered for you; or {larger}"
        )
    if taken.steps >= MOST_STEPS:
        return f"gpuMemoryUtilization was lowered {taken.steps} times: {ways}, or {larger}"
    return f"at a lower gpuMemoryUtilization the plan does not fit: {ways}, or {larger}"


def _utilization(plan: Mapping[str, Any]) -> float:
    return float(plan["chosen"]["gpuMemoryUtilization"])
