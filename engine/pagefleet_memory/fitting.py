"""Does one option fit: limits derived around the pins, and what is left used well."""

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
    sequences_in_flight,
)
from pagefleet_memory.demand import Demand
from pagefleet_memory.kv_cache import blocks_for_tokens
from pagefleet_memory.ledger import budget_bytes
from pagefleet_memory.limits import EngineLimits
from pagefleet_memory.options import Option
from pagefleet_memory.plan_types import Rejection
from pagefleet_memory.precision import check_kv_dtype, resolve_dtype
from pagefleet_memory.speed import decode_step_seconds
from pagefleet_memory.units import GIB, MIB, format_bytes
from pagefleet_memory.workload import NodeGroup

_CPU_UTILIZATION = 0.95
_CPU_LIMIT_STEP = 64 * MIB
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


def fit_option(demand: Demand, group: NodeGroup, option: Option) -> Candidate | Rejection:
    """The option with the limits that ask for least, or by how much it falls short."""
    accelerator = device(demand, group)
    limits = smallest_limits(demand, accelerator, option)
    required = demand.required_tokens(limits.max_model_len)
    if demand.shortfall(accelerator, limits, required):
        return _does_not_fit(demand, group, option, accelerator, limits)
    return Candidate(group, option, accelerator, limits, demand.num_blocks(accelerator, limits))


def grow(demand: Demand, candidate: Candidate) -> Candidate:
    """Use what is left: for the context length where it is open, then for more requests."""
    accelerator, limits = candidate.accelerator, candidate.limits
    if demand.stated_model_len is None:
        longest = _open_model_len(demand, accelerator, limits)
        limits = replace(limits, max_model_len=longest)
    if demand.pins.max_num_seqs is None:
        limits = replace(limits, max_num_seqs=_sustained_seqs(demand, accelerator, limits))
    if accelerator.kind == "CPU" and demand.pins.device_memory_bytes is None:
        accelerator = _smallest_container(demand, accelerator, limits)
    num_blocks = demand.num_blocks(accelerator, limits)
    return replace(candidate, accelerator=accelerator, limits=limits, num_blocks=num_blocks)


def device(demand: Demand, group: NodeGroup) -> Accelerator:
    """What a rank runs on: on CPU a stated memory limit stands for the node's memory."""
    stated = demand.pins.device_memory_bytes
    if group.accelerator.kind == "CPU" and stated is not None:
        return replace(group.accelerator, memory_bytes=min(stated, group.accelerator.memory_bytes))
    return group.accelerator


def smallest_limits(demand: Demand, accelerator: Accelerator, option: Option) -> EngineLimits:
    """The limits that ask for least memory within the pins: one request at a time."""
    pins, cpu = demand.pins, accelerator.kind == "CPU"
    floor = model_len_floor(demand.workload, demand.shape.max_position_embeddings)
    check_kv_dtype(accelerator, pins.kv_cache_dtype or "auto")
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


def longest_model_len(demand: Demand, accelerator: Accelerator, limits: EngineLimits) -> int:
    """The largest whole-block max_model_len of which one request fits; 0 where none does."""
    low, high = 0, demand.shape.max_position_embeddings // limits.block_size
    while low < high:
        middle = (low + high + 1) // 2
        longer = replace(limits, max_model_len=middle * limits.block_size)
        if demand.shortfall(accelerator, longer, longer.max_model_len) == 0:
            low = middle
        else:
            high = middle - 1
    return low * limits.block_size


def _open_model_len(demand: Demand, accelerator: Accelerator, limits: EngineLimits) -> int:
    """An unstated context length: the model's own, as far as one request of it fits."""
    most = demand.shape.max_position_embeddings
    if accelerator.kind == "CPU":
        most = min(most, max(MODEL_LEN_CPU, limits.max_model_len))
    whole = replace(limits, max_model_len=most)
    if demand.shortfall(accelerator, whole, most) == 0:
        return most
    return max(limits.max_model_len, longest_model_len(demand, accelerator, limits))


def _sustained_seqs(demand: Demand, accelerator: Accelerator, limits: EngineLimits) -> int:
    """Requests at once whose tail the pool holds; slots cost memory, so they start high."""
    slots = _worthwhile_slots(demand, accelerator, limits)
    load = context_load(demand.workload, limits.max_model_len)
    required = demand.required_tokens(limits.max_model_len)
    while slots > 1:
        wide = replace(limits, max_num_seqs=slots)
        if demand.shortfall(accelerator, wide, required) == 0:
            tokens = demand.num_blocks(accelerator, wide) * limits.block_size
            sustained = min(slots, load.sequences_for(tokens, limits.block_size))
            if sustained > slots // 2:
                return sustained
        slots //= 2
    return 1


def _worthwhile_slots(demand: Demand, accelerator: Accelerator, limits: EngineLimits) -> int:
    """Slots that the workload can fill and a step can serve."""
    cap = sequence_cap(demand.workload, cpu=accelerator.kind == "CPU")
    cap = min(cap, limits.max_num_batched_tokens)
    if demand.workload.request_rate is None or accelerator.bandwidth_gbps is None:
        return cap
    mean = int(context_load(demand.workload, limits.max_model_len).mean)
    seconds = decode_step_seconds(demand.shape, accelerator, limits, batch=cap, context_tokens=mean)
    return max(1, min(cap, sequences_in_flight(demand.workload, seconds) or cap))


def _smallest_container(demand: Demand, node: Accelerator, limits: EngineLimits) -> Accelerator:
    """The smallest memory limit that serves the workload, at most the node's memory."""
    load = context_load(demand.workload, limits.max_model_len)
    concurrency = demand.workload.concurrency or DEFAULT_CPU_CONCURRENCY
    served = min(concurrency, limits.max_num_seqs)
    wanted = int(load.tokens_for(served, limits.block_size))
    tokens = max(demand.required_tokens(limits.max_model_len), wanted)
    sizes = demand.stage_sizes(node, limits)[0]
    pool = blocks_for_tokens(demand.shape, limits, tokens) * sizes.block_bytes
    needed = (sizes.fixed_bytes + pool + 1) / limits.gpu_memory_utilization
    steps = int(needed) // _CPU_LIMIT_STEP + 1
    return replace(node, memory_bytes=min(node.memory_bytes, steps * _CPU_LIMIT_STEP))


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
