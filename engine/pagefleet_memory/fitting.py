"""Does one option fit: the limits that ask for least around the pins, or what is missing."""

from dataclasses import dataclass, replace

from pagefleet_memory.accelerator import Accelerator
from pagefleet_memory.batching import (
    BATCHED_TOKENS_CPU,
    STEP_SECONDS,
    batched_tokens,
    model_len_floor,
    sequence_cap,
)
from pagefleet_memory.demand import Demand
from pagefleet_memory.errors import LimitError
from pagefleet_memory.kv_cache import blocks_for_tokens
from pagefleet_memory.ledger import budget_bytes
from pagefleet_memory.limits import EngineLimits
from pagefleet_memory.options import Option
from pagefleet_memory.plan_types import Rejection
from pagefleet_memory.precision import check_kv_dtype, resolve_dtype
from pagefleet_memory.speed import tokens_computed_in
from pagefleet_memory.units import GIB, format_bytes
from pagefleet_memory.workload import NodeGroup

_CPU_UTILIZATION = 0.95
_FREE_BYTES = GIB // 2  # what stays outside the budget on a GPU: at least this, or this share
_FREE_SHARE = 0.03


@dataclass(frozen=True, slots=True)
class Candidate:
    """An option that fits: on what, with which limits, holding how many blocks."""

    group: NodeGroup
    option: Option
    accelerator: Accelerator
    limits: EngineLimits
    num_blocks: int

    @property
    def gpus(self) -> int:
        """GPUs of one replica; none on CPU."""
        return 0 if self.accelerator.kind == "CPU" else self.option.gpus

    @property
    def kv_tokens(self) -> int:
        """Tokens of the pool."""
        return self.num_blocks * self.limits.block_size


def try_option(demand: Demand, group: NodeGroup, option: Option) -> Candidate | Rejection:
    """The option with the limits that ask for least, or why it cannot be."""
    try:
        return _fit_option(demand, group, option)
    except LimitError as error:
        return Rejection(option.describe(group), "InvalidPin", str(error))


def device(demand: Demand, group: NodeGroup) -> Accelerator:
    """What a rank runs on: on CPU a stated memory limit stands for the node's memory."""
    stated = demand.pins.device_memory_bytes
    if group.accelerator.kind == "CPU" and stated is not None:
        return replace(group.accelerator, memory_bytes=min(stated, group.accelerator.memory_bytes))
    return group.accelerator


def smallest_limits(demand: Demand, accelerator: Accelerator, option: Option) -> EngineLimits:
    """The limits that ask for least memory within the pins: one request at a time.

    Raises LimitError for a pinned number format that the accelerator does not have.
    """
    utilization = demand.pins.gpu_memory_utilization or derived_utilization(accelerator)
    # All that decides the limits but the demand: cards of one kind differ in memory only.
    key = (
        "limits",
        *(accelerator.kind, accelerator.bf16, accelerator.fp8, accelerator.compute_capability),
        *(accelerator.bf16_tflops, utilization, option),
    )
    return demand.once(key, lambda: _limits(demand, accelerator, option, utilization))


def _limits(
    demand: Demand, accelerator: Accelerator, option: Option, utilization: float
) -> EngineLimits:
    pins, cpu = demand.pins, accelerator.kind == "CPU"
    floor = model_len_floor(demand.workload, demand.shape.max_position_embeddings)
    check_kv_dtype(accelerator, pins.kv_cache_dtype or "auto")
    seqs = pins.max_num_seqs or 1
    batched = pins.max_num_batched_tokens or max(
        seqs,
        sequence_cap(demand.workload, cpu=cpu),
        _step_tokens(demand, accelerator, option),
    )
    return EngineLimits(
        dtype=resolve_dtype(demand.shape, accelerator, pins.dtype),
        kv_cache_dtype=pins.kv_cache_dtype or "auto",
        block_size=pins.block_size or 16,
        max_model_len=demand.stated_model_len or floor,
        max_num_seqs=seqs,
        max_num_batched_tokens=batched,
        enforce_eager=cpu if pins.enforce_eager is None else pins.enforce_eager,
        tensor_parallel_size=option.tensor_parallel_size,
        pipeline_parallel_size=option.pipeline_parallel_size,
        gpu_memory_utilization=utilization,
        swap_space_bytes=pins.swap_space_bytes or 0,
    )


def derived_utilization(accelerator: Accelerator) -> float:
    """The largest share, in hundredths, that leaves room for what no ledger counts."""
    if accelerator.kind == "CPU":
        return _CPU_UTILIZATION
    free = max(_FREE_BYTES, int(accelerator.memory_bytes * _FREE_SHARE))
    percent = 100 * (accelerator.memory_bytes - free) // accelerator.memory_bytes
    return max(50, percent) / 100


def _step_tokens(demand: Demand, accelerator: Accelerator, option: Option) -> int:
    if accelerator.kind == "CPU":
        return BATCHED_TOKENS_CPU
    computed = tokens_computed_in(
        STEP_SECONDS,
        demand.work,
        accelerator,
        tensor_parallel_size=option.tensor_parallel_size,
    )
    return batched_tokens(computed)


def _fit_option(demand: Demand, group: NodeGroup, option: Option) -> Candidate | Rejection:
    accelerator = device(demand, group)
    limits = smallest_limits(demand, accelerator, option)
    required = demand.required_tokens(limits.max_model_len)
    if demand.shortfall(accelerator, limits, required):
        return _does_not_fit(demand, group, option, accelerator, limits)
    return Candidate(group, option, accelerator, limits, demand.num_blocks(accelerator, limits))


def _does_not_fit(
    demand: Demand, group: NodeGroup, option: Option, accelerator: Accelerator, limits: EngineLimits
) -> Rejection:
    tokens = demand.required_tokens(limits.max_model_len)
    blocks = blocks_for_tokens(demand.shape, limits, tokens)
    tightest = max(
        demand.stage_sizes(accelerator, limits),
        key=lambda size: size.fixed_bytes + blocks * size.block_bytes,
    )
    budget = budget_bytes(accelerator, limits)
    short = demand.shortfall(accelerator, limits, tokens)
    message = (
        f"needs {format_bytes(tightest.weights_bytes)} weights"
        f" + {format_bytes(blocks * tightest.block_bytes)} KV cache for {tokens} tokens"
        f" + {format_bytes(tightest.fixed_bytes - tightest.weights_bytes)} workspace and context"
        f" per {'container' if accelerator.kind == 'CPU' else 'GPU'};"
        f" {format_bytes(budget)} usable at utilization {limits.gpu_memory_utilization:g};"
        f" short by {format_bytes(short)}"
    )
    return Rejection(option.describe(group), "DoesNotFit", message, short)
