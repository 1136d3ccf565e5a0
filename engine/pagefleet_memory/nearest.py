"""The nearest changes that make a plan exist: each one is tried before it is said."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pagefleet_memory.accelerator import Accelerator, accelerator_from_labels
from pagefleet_memory.demand import Demand
from pagefleet_memory.engine_formats import FP8, GPTQ
from pagefleet_memory.engine_weights import unread_weights
from pagefleet_memory.errors import LimitError
from pagefleet_memory.fitting import Candidate, device, smallest_limits, try_option
from pagefleet_memory.growing import grow, longest_model_len
from pagefleet_memory.kv_lever import SMALLER_KV_COST, SMALLER_KV_DTYPE, may_propose
from pagefleet_memory.options import group_options
from pagefleet_memory.pins_check import invalid_pin, matches_products
from pagefleet_memory.plan_types import Change
from pagefleet_memory.products import PRODUCTS
from pagefleet_memory.quantization import Quantization
from pagefleet_memory.quantized import as_quantized
from pagefleet_memory.units import MIB
from pagefleet_memory.workload import NodeGroup

_SIZES_TO_SUGGEST = (1, 2, 4, 8)
_NODES_TO_SUGGEST = 4
_GPUS_TO_SUGGEST = 8

# Checkpoints that publishers offer, by how much is rounded: name, method, packing.
_QUANTIZED = (
    (
        "an 8-bit checkpoint (fp8, a scale per row)",
        Quantization("fp8", engine_format=FP8),
        "fp8",
    ),
    (
        "a 4-bit checkpoint (GPTQ, groups of 128)",
        Quantization("gptq", group_size=128, engine_format=GPTQ),
        "int4-g128",
    ),
)

# Pins that a user can leave out, by the fields of the spec.
_PINNED = {
    "maxNumBatchedTokens": ("max_num_batched_tokens",),
    "gpuMemoryUtilization": ("gpu_memory_utilization",),
    "dtype": ("dtype",),
    "kvCache.dtype": ("kv_cache_dtype",),
    "parallelism and maxGPUs": ("tensor_parallel_size", "pipeline_parallel_size", "max_gpus"),
    "products": ("products",),
}


def nearest_changes(demand: Demand, groups: Sequence[NodeGroup]) -> tuple[Change, ...]:
    """Changes of one thing at a time: smaller demands first, then other formats, then hardware."""
    found = (
        *_shorter_context(demand, groups),
        *_fewer_requests(demand, groups),
        *_fewer_tokens(demand, groups),
        *_without_pins(demand, groups),
        *_smaller_cache(demand, groups),
        *_quantized_weights(demand, groups),
        *_more_memory(demand, groups),
        *_more_gpus(demand, groups),
        *_other_product(demand, groups),
    )
    return tuple({change.message: change for change in found}.values())


def _shorter_context(demand: Demand, groups: Sequence[NodeGroup]) -> Iterator[Change]:
    """The longest context that fits on any option of the inventory."""
    if demand.stated_model_len is None:
        return
    longest = 0
    for group in _distinct(groups):
        longest = _longest(demand, group, above=longest)
    if demand.workload.shared_prefix_tokens < longest < demand.stated_model_len:
        shorter = Demand(
            demand.shape,
            replace(demand.workload, max_model_len=longest),
            replace(demand.pins, max_model_len=longest),
        )
        yield from _change(f"maxModelLen {longest} fits", shorter, groups)


def _longest(demand: Demand, group: NodeGroup, *, above: int) -> int:
    accelerator, longest = device(demand, group), above
    for option in group_options(demand.shape, group, demand.pins):
        try:
            limits = smallest_limits(demand, accelerator, option)
        except LimitError:  # a pinned number format that this accelerator lacks
            continue
        longest = longest_model_len(demand, accelerator, limits, above=longest)
    return longest


def _fewer_requests(demand: Demand, groups: Sequence[NodeGroup]) -> Iterator[Change]:
    """The most slots that fit, where a pin asks for more."""
    pinned = demand.pins.max_num_seqs
    if pinned is None:
        return
    low, high = 0, pinned
    while low < high:
        middle = (low + high + 1) // 2
        if _first_fit(_repinned(demand, max_num_seqs=middle), groups):
            low = middle
        else:
            high = middle - 1
    if 0 < low < pinned:
        fewer = _repinned(demand, max_num_seqs=low)
        yield from _change(f"maxNumSeqs {low} fits", fewer, groups)


def _fewer_tokens(demand: Demand, groups: Sequence[NodeGroup]) -> Iterator[Change]:
    """The most KV tokens that fit, where a stated floor asks for more."""
    floor = demand.pins.min_kv_tokens
    if floor is None:
        return
    free = _repinned(demand, min_kv_tokens=None)
    fitting = [
        outcome.kv_tokens
        for group in _distinct(groups)
        for option in group_options(demand.shape, group, demand.pins)
        if isinstance(outcome := try_option(free, group, option), Candidate)
    ]
    most = max(fitting, default=0)
    if most:
        fewer = _repinned(demand, min_kv_tokens=most)
        yield from _change(f"minKVTokens {most} fits", fewer, groups)


def _without_pins(demand: Demand, groups: Sequence[NodeGroup]) -> Iterator[Change]:
    for field, names in _PINNED.items():
        if all(getattr(demand.pins, name) in (None, ()) for name in names):
            continue
        free = _repinned(demand, **{name: () if name == "products" else None for name in names})
        candidate = _first_fit(free, groups)
        if candidate is not None:
            message = f"{field} left out: {_describe(candidate)} fits"
            yield from _change(message, free, groups)


def _smaller_cache(demand: Demand, groups: Sequence[NodeGroup]) -> Iterator[Change]:
    if may_propose(demand):
        smaller = _repinned(demand, kv_cache_dtype=SMALLER_KV_DTYPE)
        message = f"kvCache.dtype {SMALLER_KV_DTYPE} fits ({SMALLER_KV_COST})"
        yield from _change(message, smaller, groups)


def _quantized_weights(demand: Demand, groups: Sequence[NodeGroup]) -> Iterator[Change]:
    """The least rounding of weights that fits, of those that an engine reads."""
    if demand.shape.quantization is not None:
        return
    for name, quantization, packing in _QUANTIZED:
        shape = as_quantized(demand.shape, quantization, packing)
        if unread_weights(shape):
            continue
        smaller = Demand(shape, demand.workload, demand.pins)
        gpus = [group for group in groups if _computes_in(group.accelerator, packing)]
        candidate = _first_fit(smaller, gpus)
        if candidate is not None:
            yield from _change(f"{name} fits {_describe(candidate)}", smaller, gpus)
            return


def _computes_in(accelerator: Accelerator, packing: str) -> bool:
    """Whether it is a GPU with a kernel for these weights; others unpack fp8 at every step."""
    return accelerator.kind == "GPU" and (accelerator.fp8 or packing != "fp8")


def _more_memory(demand: Demand, groups: Sequence[NodeGroup]) -> Iterator[Change]:
    """CPU: the memory limit that would do, where the user stated a smaller one."""
    if demand.pins.device_memory_bytes is None:
        return
    cpu = [group for group in groups if group.accelerator.kind == "CPU"]
    free = _repinned(demand, device_memory_bytes=None)
    found = _first_fit(free, cpu)
    if found is not None:
        memory = grow(free, found).accelerator.memory_bytes
        enough = _repinned(demand, device_memory_bytes=memory)
        yield from _change(f"memory {memory // MIB}Mi fits", enough, cpu)


def _more_gpus(demand: Demand, groups: Sequence[NodeGroup]) -> Iterator[Change]:
    """More of the products at hand: the smallest count that would do."""
    free = _unsplit(demand)
    for group in _distinct(groups):
        if group.accelerator.kind == "CPU" or group.accelerator.mig_profile:
            continue
        per_node = max(_GPUS_TO_SUGGEST, group.accelerators_per_node)
        nodes = max(_NODES_TO_SUGGEST, group.nodes)
        larger = replace(group, accelerators_per_node=per_node, nodes=nodes)
        candidate = _first_fit(free, [larger])
        if candidate is not None:
            yield from _change(f"{_describe(candidate)} fits", free, [larger])


def _other_product(demand: Demand, groups: Sequence[NodeGroup]) -> Iterator[Change]:
    """The smallest product of the table that would do with as many GPUs as a node has."""
    gpus = [
        1 if group.accelerator.mig_profile else group.accelerators_per_node
        for group in groups
        if group.accelerator.kind == "GPU"
    ]
    if not gpus:
        return
    count = max(size for size in _SIZES_TO_SUGGEST if size <= max(gpus))
    free = _repinned(_unsplit(demand), products=())
    for product in sorted(PRODUCTS, key=lambda row: (row.label_mib, row.label)):
        accelerator = accelerator_from_labels(product.label, product.label_mib)
        group = NodeGroup(product.label, accelerator, count, 1)
        candidate = _first_fit(free, [group])
        if candidate is not None:
            yield from _change(f"{_describe(candidate)} fits", free, [group])
            return


def _unsplit(demand: Demand) -> Demand:
    return _repinned(demand, tensor_parallel_size=None, pipeline_parallel_size=None, max_gpus=None)


def _describe(candidate: Candidate) -> str:
    return candidate.option.describe(candidate.group).split(": ")[1]


def _repinned(demand: Demand, **changes: object) -> Demand:
    return Demand(demand.shape, demand.workload, replace(demand.pins, **changes))  # type: ignore[arg-type]


def _distinct(groups: Sequence[NodeGroup]) -> Iterable[NodeGroup]:
    """One group of each accelerator and size."""
    seen = {(g.accelerator, g.accelerators_per_node, g.nodes): g for g in reversed(groups)}
    return reversed(seen.values())


def _first_fit(demand: Demand, groups: Sequence[NodeGroup]) -> Candidate | None:
    if invalid_pin(demand, groups):
        return None
    for group in _distinct([group for group in groups if matches_products(group, demand.pins)]):
        for option in group_options(demand.shape, group, demand.pins):
            outcome = try_option(demand, group, option)
            if isinstance(outcome, Candidate):
                return outcome
    return None


def _change(message: str, demand: Demand, groups: Sequence[NodeGroup]) -> Iterator[Change]:
    if _first_fit(demand, groups):
        yield Change(message, demand.shape, demand.workload, tuple(groups), demand.pins)
