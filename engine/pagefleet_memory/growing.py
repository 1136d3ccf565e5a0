"""What an option does with the memory that it has left: longer contexts, then more requests."""

from dataclasses import replace

from pagefleet_memory.accelerator import Accelerator
from pagefleet_memory.batching import (
    DEFAULT_CPU_CONCURRENCY,
    MODEL_LEN_CPU,
    context_load,
    mean_prompt_tokens,
    sequence_cap,
    sequences_in_flight,
)
from pagefleet_memory.demand import Demand
from pagefleet_memory.fitting import Candidate
from pagefleet_memory.kv_cache import blocks_for_tokens
from pagefleet_memory.limits import EngineLimits
from pagefleet_memory.speed import decode_step_seconds, prefill_seconds
from pagefleet_memory.units import MIB

_CPU_LIMIT_STEP = 64 * MIB


def grow(demand: Demand, candidate: Candidate) -> Candidate:
    """Use what is left: for the context length where it is open, then for more requests."""
    accelerator, limits = candidate.accelerator, _with_slots(demand, candidate)
    if demand.stated_model_len is None:
        # One longest request must not take the memory of the slots that shorter ones run in.
        longest = _open_model_len(demand, accelerator, limits)
        longer = replace(candidate.limits, max_model_len=longest)
        limits = _with_slots(demand, replace(candidate, limits=longer))
    if accelerator.kind == "CPU" and demand.pins.device_memory_bytes is None:
        accelerator = _smallest_container(demand, accelerator, limits)
    num_blocks = demand.num_blocks(accelerator, limits)
    return replace(candidate, accelerator=accelerator, limits=limits, num_blocks=num_blocks)


def meets_workload(demand: Demand, candidate: Candidate) -> bool:
    """Whether the stated concurrency stays within the pool; a CPU's container is made for it."""
    wanted = demand.wanted_requests
    if wanted == 1 or candidate.accelerator.kind == "CPU":
        return True
    return _holds(demand, candidate.accelerator, candidate.limits, wanted)


def share_held(demand: Demand, candidate: Candidate) -> int:
    """Of the requests that the workload wants at once, those that fit beside slots for all."""
    limits, wanted = candidate.limits, demand.wanted_requests
    if demand.pins.max_num_seqs is None:
        limits = replace(limits, max_num_seqs=wanted)
    load = context_load(demand.workload, limits.max_model_len)
    tokens = demand.num_blocks(candidate.accelerator, limits) * limits.block_size
    return min(wanted, load.sequences_for(tokens, limits.block_size))


def requests_held(demand: Demand, accelerator: Accelerator, limits: EngineLimits, most: int) -> int:
    """The most requests, up to `most`, whose tail the pool holds; a slot costs memory as well.

    More slots leave a smaller pool and need a larger one, so the answer is found by halving.
    """
    low, high = 1, max(1, most)
    while low < high:
        middle = (low + high + 1) // 2
        if _holds(demand, accelerator, limits, middle):
            low = middle
        else:
            high = middle - 1
    return low


def longest_model_len(
    demand: Demand, accelerator: Accelerator, limits: EngineLimits, *, above: int = 0
) -> int:
    """The largest whole-block max_model_len of which one request fits; `above` where none longer
    than that does.
    """
    block = limits.block_size
    low, high = above // block, demand.shape.max_position_embeddings // block

    def fits(blocks: int) -> bool:
        longer = replace(limits, max_model_len=blocks * block)
        required = demand.required_tokens(longer.max_model_len)
        return demand.shortfall(accelerator, longer, required) == 0

    if low >= high or not fits(low + 1):
        return above
    low += 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low * block


def _with_slots(demand: Demand, candidate: Candidate) -> EngineLimits:
    """The candidate's limits with as many slots as pay, or as are pinned."""
    accelerator, limits = candidate.accelerator, candidate.limits
    if demand.pins.max_num_seqs is not None:
        return limits
    most = _slots_worth_having(demand, accelerator, limits)
    return replace(limits, max_num_seqs=requests_held(demand, accelerator, limits, most))


def _open_model_len(demand: Demand, accelerator: Accelerator, limits: EngineLimits) -> int:
    """An unstated context length: the model's own, as far as one request of it fits."""
    most = demand.shape.max_position_embeddings
    if accelerator.kind == "CPU":
        most = min(most, max(MODEL_LEN_CPU, limits.max_model_len))
    whole = replace(limits, max_model_len=most)
    if demand.shortfall(accelerator, whole, demand.required_tokens(most)) == 0:
        return most
    return max(limits.max_model_len, longest_model_len(demand, accelerator, limits))


def _holds(demand: Demand, accelerator: Accelerator, limits: EngineLimits, requests: int) -> bool:
    if demand.pins.max_num_seqs is None:
        limits = replace(limits, max_num_seqs=requests)
    required = demand.required_tokens(limits.max_model_len)
    if demand.shortfall(accelerator, limits, required):
        return False
    load = context_load(demand.workload, limits.max_model_len)
    tokens = demand.num_blocks(accelerator, limits) * limits.block_size
    return load.tokens_for(requests, limits.block_size) <= tokens


def _slots_worth_having(demand: Demand, accelerator: Accelerator, limits: EngineLimits) -> int:
    """Slots that the workload can fill and a step can serve; a stated concurrency is taken."""
    work, workload = demand.work, demand.workload
    cap = sequence_cap(workload, cpu=accelerator.kind == "CPU")
    cap = min(cap, limits.max_num_batched_tokens)
    rate = workload.request_rate
    if rate is None or workload.concurrency is not None or accelerator.bandwidth_gbps is None:
        return cap
    context = int(context_load(workload, limits.max_model_len).mean)
    prompt = mean_prompt_tokens(workload, limits.max_model_len)
    return sequences_in_flight(
        rate,
        workload,
        prefill=prefill_seconds(work, accelerator, limits, tokens=prompt),
        step=lambda batch: decode_step_seconds(
            work, accelerator, limits, batch=batch, context_tokens=context
        ),
        most=cap,
    )


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
