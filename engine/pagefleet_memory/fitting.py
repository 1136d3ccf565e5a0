"""Does one option fit: limits derived around the pins, ledgers of its stages, the plan."""

from dataclasses import dataclass, replace

from pagefleet_memory.accelerator import Accelerator
from pagefleet_memory.batching import (
    BATCHED_TOKENS_CPU,
    BATCHED_TOKENS_GPU,
    DEFAULT_CPU_CONCURRENCY,
    MODEL_LEN_CPU,
    context_load,
    model_len_floor,
    sequence_cap,
)
from pagefleet_memory.host import host_memory_bytes, shm_bytes, startup_seconds
from pagefleet_memory.kv_cache import blocks_for_tokens, kv_block_bytes, num_kv_blocks
from pagefleet_memory.ledger import Ledger, budget_bytes, build_stage_ledgers
from pagefleet_memory.limits import EngineLimits
from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.options import Option
from pagefleet_memory.plan_types import MemoryPlan, Rejection
from pagefleet_memory.precision import resolve_dtype
from pagefleet_memory.units import GIB, MIB, format_bytes
from pagefleet_memory.workload import NodeGroup, Pins, Workload

_CPU_UTILIZATION = 0.95
_CPU_LIMIT_STEP = 64 * MIB
_FREE_BYTES = GIB // 2  # what stays outside the budget on a GPU: at least this, or this share
_FREE_SHARE = 0.03


@dataclass(frozen=True, slots=True)
class Demand:
    """What every option is held against."""

    shape: ModelShape
    workload: Workload
    pins: Pins

    @property
    def stated_model_len(self) -> int | None:
        """The context length the user asked for."""
        return self.pins.max_model_len or self.workload.max_model_len

    def required_tokens(self, max_model_len: int) -> int:
        """KV tokens below which a plan is refused."""
        return max(max_model_len, self.pins.min_kv_tokens or 0)


@dataclass(frozen=True, slots=True)
class Fit:
    """Limits on an accelerator, the ledgers of its stages and the blocks that all can hold."""

    limits: EngineLimits
    stages: tuple[Ledger, ...]
    num_blocks: int

    @property
    def kv_tokens(self) -> int:
        """Tokens of the pool."""
        return self.num_blocks * self.limits.block_size


def fit_option(demand: Demand, group: NodeGroup, option: Option) -> MemoryPlan | Rejection:
    """The plan of this option, or by how much it falls short."""
    accelerator = _device(demand, group)
    smallest = measure(demand, accelerator, smallest_limits(demand, accelerator, option))
    required = demand.required_tokens(smallest.limits.max_model_len)
    short = shortfall(demand, smallest, required)
    if short > 0:
        return _does_not_fit(demand, group, option, smallest, required, short)
    chosen = _grow(demand, accelerator, smallest, required)
    if accelerator.kind == "CPU" and demand.pins.device_memory_bytes is None:
        accelerator = _smallest_container(demand, accelerator, chosen)
        chosen = measure(demand, accelerator, chosen.limits)
    return _plan(demand, group, option, accelerator, chosen)


def smallest_limits(demand: Demand, accelerator: Accelerator, option: Option) -> EngineLimits:
    """The limits that ask for least memory within the pins: one request at a time."""
    pins, cpu = demand.pins, accelerator.kind == "CPU"
    floor = model_len_floor(demand.workload, demand.shape.max_position_embeddings)
    seqs = pins.max_num_seqs or 1
    batched = BATCHED_TOKENS_CPU if cpu else BATCHED_TOKENS_GPU
    return EngineLimits(
        dtype=resolve_dtype(demand.shape, accelerator, pins.dtype),
        kv_cache_dtype=pins.kv_cache_dtype or "auto",
        block_size=pins.block_size or 16,
        max_model_len=demand.stated_model_len or floor,
        max_num_seqs=seqs,
        max_num_batched_tokens=pins.max_num_batched_tokens or max(batched, seqs),
        enforce_eager=cpu if pins.enforce_eager is None else pins.enforce_eager,
        tensor_parallel_size=option.tensor_parallel_size,
        pipeline_parallel_size=option.pipeline_parallel_size,
        gpu_memory_utilization=pins.gpu_memory_utilization or derived_utilization(accelerator),
        swap_space_bytes=pins.swap_space_bytes or 0,
    )


def derived_utilization(accelerator: Accelerator) -> float:
    """The largest share, in hundredths, that leaves room for what no ledger counts."""
    if accelerator.kind == "CPU":
        return _CPU_UTILIZATION
    free = max(_FREE_BYTES, int(accelerator.memory_bytes * _FREE_SHARE))
    percent = 100 * (accelerator.memory_bytes - free) // accelerator.memory_bytes
    return max(50, percent) / 100


def measure(demand: Demand, accelerator: Accelerator, limits: EngineLimits) -> Fit:
    """Ledgers and blocks of these limits."""
    stages = build_stage_ledgers(demand.shape, accelerator, limits)
    return Fit(limits, stages, num_kv_blocks(stages, demand.shape, limits))


def shortfall(demand: Demand, fit: Fit, required_tokens: int) -> int:
    """Bytes per accelerator that the tightest stage lacks for these tokens; 0 where it fits."""
    blocks = blocks_for_tokens(demand.shape, fit.limits, required_tokens)
    needs = (
        blocks * kv_block_bytes(demand.shape, fit.limits, stage=ledger.stage) - ledger.kv_pool_bytes
        for ledger in fit.stages
    )
    return max(0, *needs, 0)


def longest_model_len(demand: Demand, accelerator: Accelerator, limits: EngineLimits) -> int:
    """The largest whole-block max_model_len of which one request fits; 0 where none does."""
    low, high = 0, demand.shape.max_position_embeddings // limits.block_size
    while low < high:
        middle = (low + high + 1) // 2
        tokens = middle * limits.block_size
        fit = measure(demand, accelerator, replace(limits, max_model_len=tokens))
        if fit.num_blocks >= middle and fit.num_blocks > 0:
            low = middle
        else:
            high = middle - 1
    return low * limits.block_size


def _device(demand: Demand, group: NodeGroup) -> Accelerator:
    stated = demand.pins.device_memory_bytes
    if group.accelerator.kind == "CPU" and stated is not None:
        return replace(group.accelerator, memory_bytes=stated)
    return group.accelerator


def _grow(demand: Demand, accelerator: Accelerator, smallest: Fit, required: int) -> Fit:
    """Use what is left: first the context length where it is open, then requests at once."""
    limits = smallest.limits
    if demand.stated_model_len is None:
        limits = replace(limits, max_model_len=_open_model_len(demand, accelerator, limits))
        required = demand.required_tokens(limits.max_model_len)
    fit = measure(demand, accelerator, limits)
    if demand.pins.max_num_seqs is not None:
        return fit
    slots = min(
        sequence_cap(demand.workload, cpu=accelerator.kind == "CPU"), limits.max_num_batched_tokens
    )
    load = context_load(demand.workload, limits.max_model_len)
    while slots > 1:
        wide = measure(demand, accelerator, replace(limits, max_num_seqs=slots))
        sustained = min(slots, load.sequences_for(wide.kv_tokens, limits.block_size))
        if shortfall(demand, wide, required) == 0 and sustained > slots // 2:
            return measure(demand, accelerator, replace(limits, max_num_seqs=sustained))
        slots //= 2
    return fit


def _open_model_len(demand: Demand, accelerator: Accelerator, limits: EngineLimits) -> int:
    """An unstated context length: the model's own, as far as one request of it fits."""
    most = demand.shape.max_position_embeddings
    if accelerator.kind == "CPU":
        most = min(most, max(MODEL_LEN_CPU, limits.max_model_len))
    whole = replace(limits, max_model_len=most)
    if shortfall(demand, measure(demand, accelerator, whole), demand.required_tokens(most)) == 0:
        return most
    longest = min(most, longest_model_len(demand, accelerator, limits))
    return max(limits.max_model_len, longest)


def _smallest_container(demand: Demand, node: Accelerator, fit: Fit) -> Accelerator:
    """The smallest memory limit that serves the workload, at most the node's memory."""
    limits = fit.limits
    load = context_load(demand.workload, limits.max_model_len)
    concurrency = demand.workload.concurrency or DEFAULT_CPU_CONCURRENCY
    served = min(concurrency, limits.max_num_seqs)
    wanted = int(load.tokens_for(served, limits.block_size))
    tokens = max(demand.required_tokens(limits.max_model_len), wanted)
    pool = blocks_for_tokens(demand.shape, limits, tokens) * kv_block_bytes(demand.shape, limits)
    needed = (fit.stages[0].fixed_bytes + pool + 1) / limits.gpu_memory_utilization
    steps = int(needed) // _CPU_LIMIT_STEP + 1
    return replace(node, memory_bytes=min(node.memory_bytes, steps * _CPU_LIMIT_STEP))


def _plan(
    demand: Demand, group: NodeGroup, option: Option, accelerator: Accelerator, fit: Fit
) -> MemoryPlan:
    limits, shape = fit.limits, demand.shape
    per_request = blocks_for_tokens(shape, limits, limits.max_model_len)
    return MemoryPlan(
        group=group.name,
        accelerator=accelerator,
        limits=limits,
        stages=fit.stages,
        num_kv_blocks=fit.num_blocks,
        kv_tokens=fit.kv_tokens,
        max_full_length_sequences=round(fit.num_blocks / per_request, 2),
        device_memory_bytes=accelerator.memory_bytes,
        host_memory_bytes=host_memory_bytes(
            accelerator, limits, device_memory_bytes=accelerator.memory_bytes, pods=option.pods
        ),
        shm_bytes=shm_bytes(limits, pods=option.pods),
        startup_seconds=startup_seconds(shape, accelerator, limits),
        gpus_per_replica=0 if accelerator.kind == "CPU" else option.gpus,
        pods_per_replica=option.pods,
        notes=_notes(demand, group, accelerator, limits),
    )


def _notes(
    demand: Demand, group: NodeGroup, accelerator: Accelerator, limits: EngineLimits
) -> tuple[str, ...]:
    notes = list(demand.shape.remarks)
    if demand.stated_model_len is None:
        notes.append(f"maxModelLen is not stated: {limits.max_model_len} is what fits")
    if limits.dtype != demand.shape.dtype:
        notes.append(f"weights stored as {demand.shape.dtype} run as {limits.dtype}")
    if limits.tensor_parallel_size > 1 and not group.nvlink:
        notes.append(f"{group.name} has no NVLink: tensor parallelism runs over PCIe")
    kv_heads = demand.shape.num_key_value_heads
    if not demand.shape.is_mla and limits.tensor_parallel_size > kv_heads:
        copies = limits.tensor_parallel_size // kv_heads
        notes.append(f"{kv_heads} key-value heads: each is kept {copies} times")
    if demand.shape.sliding_window:
        notes.append(
            f"layers with a window of {demand.shape.sliding_window} tokens keep full length"
        )
    return tuple(notes)


def _does_not_fit(
    demand: Demand, group: NodeGroup, option: Option, fit: Fit, required: int, short: int
) -> Rejection:
    tightest = min(fit.stages, key=lambda ledger: ledger.kv_pool_bytes)
    weights = tightest.term("weights").bytes
    pool = blocks_for_tokens(demand.shape, fit.limits, required) * kv_block_bytes(
        demand.shape, fit.limits, stage=tightest.stage
    )
    budget = budget_bytes(_device(demand, group), fit.limits)
    message = (
        f"needs {format_bytes(weights)} weights + {format_bytes(pool)} KV cache for {required}"
        f" tokens + {format_bytes(tightest.fixed_bytes - weights)} workspace and context per"
        f" {'container' if group.accelerator.kind == 'CPU' else 'GPU'};"
        f" {format_bytes(budget)} usable at utilization"
        f" {fit.limits.gpu_memory_utilization:g}; short by {format_bytes(short)}"
    )
    return Rejection(option.describe(group), "DoesNotFit", message, short)
