"""What the planner is asked: the spec in the memory model's words."""

from pagefleet_memory import LimitError, ModelShape, Pins, TokenDistribution, Workload
from pagefleet_operator.planning.hashing import short_hash
from pagefleet_operator.spec import InferenceDeployment, InferenceDeploymentSpec
from pagefleet_operator.spec.quantity import quantity_bytes
from pagefleet_operator.spec.workload import TokenLengths

_GIB = 1 << 30
_MOST_DERIVED_CORES = 8


def planner_workload(spec: InferenceDeploymentSpec) -> Workload:
    workload = spec.workload_or_default
    return Workload(
        max_model_len=workload.max_model_len,
        concurrency=workload.concurrency,
        request_rate=float(workload.request_rate) if workload.request_rate else None,
        input_tokens=_distribution(workload.input_tokens),
        output_tokens=_distribution(workload.output_tokens),
        shared_prefix_tokens=workload.shared_prefix_tokens or 0,
    )


def planner_pins(spec: InferenceDeploymentSpec) -> Pins:
    sizing, hardware = spec.sizing_or_default, spec.hardware_or_default
    utilization = sizing.gpu_memory_utilization
    _refuse_swap_space(spec.kv_cache.swap_space)
    memory = quantity_bytes(hardware.memory) if hardware.memory else None
    return Pins(
        dtype=spec.model.dtype,
        kv_cache_dtype=spec.kv_cache.dtype,
        block_size=spec.kv_cache.block_size,
        max_model_len=spec.workload_or_default.max_model_len,
        max_num_seqs=sizing.max_num_seqs,
        max_num_batched_tokens=sizing.max_num_batched_tokens,
        tensor_parallel_size=spec.parallelism.tensor,
        pipeline_parallel_size=spec.parallelism.pipeline,
        gpu_memory_utilization=float(utilization) if utilization else None,
        products=hardware.products or (),
        max_gpus=spec.limits.max_gpus,
        min_kv_tokens=spec.limits.min_kv_tokens,
        device_memory_bytes=memory,
    )


def _refuse_swap_space(swap_space: str | None) -> None:
    """The engine preempts by recompute only and does not start with swap space."""
    if swap_space is not None and quantity_bytes(swap_space) > 0:
        raise LimitError(
            f"{swap_space} is asked for, but preempted requests are recomputed",
            field="spec.sizing.kvCache.swapSpace",
            value=swap_space,
            hint="remove it, or set it to 0",
        )


def cpu_cores(spec: InferenceDeploymentSpec, shape: ModelShape, dtype: str) -> str:
    """Cores of a CPU pod: each reads about as fast as a GiB of weights wants to be read."""
    if spec.hardware_or_default.cpu:
        return spec.hardware_or_default.cpu
    return str(max(1, min(_MOST_DERIVED_CORES, shape.weight_bytes(dtype) // _GIB)))


def inputs_hash(infd: InferenceDeployment, shape: ModelShape, revision: str) -> str:
    """Identity of the question that a plan answers; the nodes are not part of it."""
    parts = infd.spec.model_dump(
        mode="json",
        by_alias=True,
        exclude_none=True,
        include={"model", "hardware", "workload", "sizing"},
    )
    parts.get("sizing", {}).pop("mode", None)
    return short_hash([parts, shape.to_summary(), revision])


def _distribution(lengths: TokenLengths | None) -> TokenDistribution | None:
    return None if lengths is None else TokenDistribution(lengths.p50, lengths.p95)
