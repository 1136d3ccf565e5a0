"""ServingPlan: spec, model shape and inventory put through the memory model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pagefleet_memory import (
    EngineLimits,
    MemoryModelError,
    MemoryPlan,
    ModelShape,
    NodeGroup,
    Pins,
    PlanResult,
    Rejection,
    plan_serving,
)
from pagefleet_operator.planning.backoff import Backoff, next_backoff, recorded_backoff
from pagefleet_operator.planning.engine_args import build_engine_args
from pagefleet_operator.planning.hashing import short_hash
from pagefleet_operator.planning.images import Images
from pagefleet_operator.planning.inputs import (
    cpu_cores,
    inputs_hash,
    planner_pins,
    planner_workload,
)
from pagefleet_operator.planning.inventory import Inventory
from pagefleet_operator.planning.plan_status import (
    plan_to_status,
    refusal_to_status,
    rejected_from_status,
)
from pagefleet_operator.spec import InferenceDeployment

NO_ACCELERATOR = "NoAccelerator"  # nothing to plan for, so a question of capacity, not of memory


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPlan:
    """How a fleet is served: everything a pod is built from, and its identity.

    `plan_hash` covers what restarts an engine: two plans of the same hash give the same pods, and
    the number of replicas, the autoscaler and the operator's own version are no part of it.
    """

    plan_hash: str
    inputs_hash: str
    memory: MemoryPlan
    rejected: tuple[Rejection, ...]
    engine_args: tuple[str, ...]
    engine_image: str
    revision: str
    cpu: str  # cores of a CPU pod
    needs_fast_bf16: bool
    backoff: Backoff

    @property
    def limits(self) -> EngineLimits:
        return self.memory.limits

    @property
    def on_gpu(self) -> bool:
        return self.memory.accelerator.kind == "GPU"

    @property
    def pods_per_replica(self) -> int:
        return self.memory.pods_per_replica

    @property
    def gpus_per_pod(self) -> int:
        if not self.on_gpu:
            return 0
        return self.memory.gpus_per_replica // self.memory.pods_per_replica

    def to_status(self) -> dict[str, Any]:
        """status.plan, and what `pagefleet plan -o json` prints."""
        return plan_to_status(self)


@dataclass(frozen=True, slots=True)
class PlanRefusal:
    """No plan: a condition's reason and message, the options looked at, and what would help."""

    reason: str
    message: str
    rejected: tuple[Rejection, ...] = ()
    nearest: tuple[str, ...] = ()

    def to_status(self) -> dict[str, Any]:
        """status.refusal."""
        return refusal_to_status(self)


def make_serving_plan(
    infd: InferenceDeployment,
    shape: ModelShape,
    revision: str,
    inventory: Inventory,
    images: Images,
    *,
    previous: Mapping[str, Any] | None = None,
    out_of_memory: str | None = None,
    spanning: bool = True,
) -> ServingPlan | PlanRefusal:
    """Plan against all nodes, whatever is free on them.

    Plans are sticky. While `previous` (status.plan) answers the same question - the same model,
    revision, hardware, workload and sizing, told by its `inputsHash` - and its product, number
    formats and parallelism still fit the nodes that exist, they are kept. So a node that comes or
    goes restarts no engine, even where it would allow a better plan; an edit of the spec plans
    anew.

    `out_of_memory`: what an engine of `previous` said when it died, so the plan gives up a little.
    `spanning` False (no LeaderWorkerSet in the cluster) keeps a replica on one node.
    """
    groups = inventory.node_groups(infd.spec)
    if not groups:
        return _no_accelerator(infd, inventory)
    reachable = groups if spanning else tuple(replace(group, nodes=1) for group in groups)
    found = plan_on_groups(
        infd, shape, revision, reachable, images, previous=previous, out_of_memory=out_of_memory
    )
    if isinstance(found, PlanRefusal) and not spanning:
        spread = plan_on_groups(infd, shape, revision, groups, images)
        return _suggest_groups_of_pods(found, spread)
    return found


def plan_on_groups(
    infd: InferenceDeployment,
    shape: ModelShape,
    revision: str,
    groups: Sequence[NodeGroup],
    images: Images,
    *,
    previous: Mapping[str, Any] | None = None,
    out_of_memory: str | None = None,
) -> ServingPlan | PlanRefusal:
    """As make_serving_plan, on groups of nodes that are given."""
    asked = inputs_hash(infd, shape, revision)
    question = _Question(infd, shape, revision, tuple(groups), images, asked)
    if not previous or previous.get("inputsHash") != asked:
        return _plan_anew(question)
    taken = recorded_backoff(previous, engine_image=images.engine)
    kept = _keep(question, previous, taken)
    if kept is None:
        return _plan_anew(question)
    # Where this image would run otherwise than the engines that died, it is tried first.
    if out_of_memory and kept.plan_hash == previous["hash"]:
        lower = next_backoff(infd.spec, previous, taken, cause=out_of_memory)
        return (_keep(question, previous, lower) if lower else None) or kept
    return kept


@dataclass(frozen=True, slots=True)
class _Question:
    """What a plan answers, and where."""

    infd: InferenceDeployment
    shape: ModelShape
    revision: str
    groups: tuple[NodeGroup, ...]
    images: Images
    inputs_hash: str

    def search(self, pins: Pins, groups: tuple[NodeGroup, ...]) -> PlanResult:
        spec = self.infd.spec
        objective = spec.sizing_or_default.objective or "MinGPUs"
        return plan_serving(self.shape, planner_workload(spec), groups, pins, objective=objective)


def _plan_anew(question: _Question) -> ServingPlan | PlanRefusal:
    try:
        result = question.search(planner_pins(question.infd.spec), question.groups)
    except MemoryModelError as error:
        return PlanRefusal("InvalidPin", str(error))
    if result.chosen is None:
        return _refusal(result)
    return _serving_plan(question, result.chosen, result.rejected, Backoff(question.images.engine))


def _keep(question: _Question, previous: Mapping[str, Any], backoff: Backoff) -> ServingPlan | None:
    """The previous plan's choice put through the planner again; None when it no longer stands."""
    infd, chosen = question.infd, previous["chosen"]
    product = previous["accelerator"]["product"]
    same = tuple(group for group in question.groups if group.accelerator.name == product)
    if not same or _lost_fast_bf16(infd, same, chosen["dtype"]):
        return None
    pins = planner_pins(infd.spec)
    pins = replace(
        pins,
        dtype=chosen["dtype"],
        kv_cache_dtype=chosen["kvCacheDtype"],
        tensor_parallel_size=chosen["tensorParallelSize"],
        pipeline_parallel_size=chosen["pipelineParallelSize"],
        gpu_memory_utilization=backoff.utilization or pins.gpu_memory_utilization,
    )
    try:
        result = question.search(pins, same)
    except MemoryModelError:
        return None
    if result.chosen is None:
        return None
    # This search saw only one option; the others were passed over when the plan was made.
    return _serving_plan(question, result.chosen, rejected_from_status(previous), backoff)


def _lost_fast_bf16(infd: InferenceDeployment, groups: Sequence[NodeGroup], dtype: str) -> bool:
    if dtype != "bfloat16" or infd.spec.model.dtype == "bfloat16":
        return False
    return not all(group.accelerator.bf16 for group in groups)


def _serving_plan(
    question: _Question,
    memory: MemoryPlan,
    rejected: tuple[Rejection, ...],
    backoff: Backoff,
) -> ServingPlan:
    infd, images = question.infd, question.images
    arguments = build_engine_args(infd, memory)
    on_cpu = memory.accelerator.kind == "CPU"
    cpu = cpu_cores(infd.spec, question.shape, memory.limits.dtype) if on_cpu else ""
    identity = {
        "model": [infd.spec.model.uri, question.revision, infd.spec.model.secret_name],
        "arguments": arguments,
        "image": images.engine,
        "accelerator": memory.accelerator.name,
        "devices": [memory.gpus_per_replica, memory.pods_per_replica],
        "resources": [cpu, memory.host_memory_bytes, memory.shm_bytes],
        "nodeSelector": infd.spec.hardware_or_default.node_selector or {},
    }
    return ServingPlan(
        plan_hash=short_hash(identity),
        inputs_hash=question.inputs_hash,
        memory=memory,
        rejected=rejected,
        engine_args=arguments,
        engine_image=images.engine,
        revision=question.revision,
        cpu=cpu,
        needs_fast_bf16=on_cpu
        and memory.limits.dtype == "bfloat16"
        and infd.spec.model.dtype != "bfloat16",
        backoff=backoff,
    )


def _refusal(result: PlanResult) -> PlanRefusal:
    refusal = result.refusal
    assert refusal is not None, "the planner returns a plan or a refusal"
    nearest = refusal.nearest
    ways = f". What would fit: {'; '.join(nearest)}" if nearest else ""
    return PlanRefusal(refusal.reason, refusal.message + ways, result.rejected, nearest)


def _suggest_groups_of_pods(refusal: PlanRefusal, spread: ServingPlan | PlanRefusal) -> PlanRefusal:
    if isinstance(spread, PlanRefusal):
        return refusal
    way = (
        f"; with LeaderWorkerSet installed a replica could span {spread.pods_per_replica} nodes of "
        f"{spread.memory.group}"
    )
    return replace(refusal, message=refusal.message + way)


def _no_accelerator(infd: InferenceDeployment, inventory: Inventory) -> PlanRefusal:
    hardware = infd.spec.hardware_or_default
    wanted = " or ".join(hardware.products or ()) or hardware.kind
    selector = hardware.node_selector
    where = f" with labels {dict(selector)}" if selector else ""
    message = f"none of {len(inventory.nodes)} nodes offers a {wanted}{where}"
    if hardware.kind == "GPU":
        found = sorted({node.product for node in inventory.nodes if node.product})
        message += f"; GPUs in the cluster: {', '.join(found) or 'none'}"
        message += "".join(f"; {why}" for why in inventory.unusable_gpus()[:4])
        if not found:
            message += "; to serve on CPUs set spec.hardware.accelerator: CPU"
    return PlanRefusal(NO_ACCELERATOR, message)
