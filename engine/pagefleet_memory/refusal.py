"""The refusal of a model that fits nowhere, with the nearest changes that would make it fit."""

from collections.abc import Sequence
from dataclasses import replace

from pagefleet_memory.accelerator import accelerator_from_labels
from pagefleet_memory.fitting import (
    Demand,
    fit_option,
    longest_model_len,
    smallest_limits,
)
from pagefleet_memory.options import group_options
from pagefleet_memory.plan_types import MemoryPlan, Refusal, Rejection
from pagefleet_memory.products import PRODUCTS
from pagefleet_memory.workload import NodeGroup, Pins

_SIZES_TO_SUGGEST = (1, 2, 4, 8)
_NODES_TO_SUGGEST = 4


def refuse_unfit(
    demand: Demand, groups: Sequence[NodeGroup], rejected: Sequence[Rejection]
) -> Refusal:
    """The closest option's numbers, and what would make it or another fit."""
    if not rejected:
        return Refusal("InvalidPin", _no_option(demand, groups), _more_gpus(demand, groups))
    short = [item for item in rejected if item.short_by_bytes is not None]
    if not short:
        return Refusal(rejected[0].reason, rejected[0].message)
    closest = min(short, key=lambda item: item.short_by_bytes or 0)
    nearest = (
        *_shorter_context(demand, groups),
        *_smaller_kv_dtype(demand, groups),
        *_more_memory(demand, groups),
        *_more_gpus(demand, groups),
        *_other_product(demand, groups),
    )
    return Refusal("DoesNotFit", f"{closest.option} {closest.message}", nearest)


def _no_option(demand: Demand, groups: Sequence[NodeGroup]) -> str:
    pins = demand.pins
    wanted = [
        f"{name} {value}"
        for name, value in (
            ("tensor_parallel_size", pins.tensor_parallel_size),
            ("pipeline_parallel_size", pins.pipeline_parallel_size),
            ("max_gpus", pins.max_gpus),
        )
        if value is not None
    ]
    offers = ", ".join(f"{g.name}: {g.accelerators_per_node} per node x {g.nodes}" for g in groups)
    return f"no node group can be split as asked ({', '.join(wanted)}); available: {offers}"


def _shorter_context(demand: Demand, groups: Sequence[NodeGroup]) -> tuple[str, ...]:
    """The longest context that fits on any option of the inventory."""
    longest = 0
    for group in groups:
        accelerator = group.accelerator
        stated = demand.pins.device_memory_bytes
        if accelerator.kind == "CPU" and stated is not None:
            accelerator = replace(accelerator, memory_bytes=stated)
        for option in group_options(demand.shape, group, demand.pins):
            limits = smallest_limits(demand, accelerator, option)
            longest = max(longest, longest_model_len(demand, accelerator, limits))
    floor = demand.pins.min_kv_tokens or 0
    if longest == 0 or longest < floor:
        return ()
    return (f"maxModelLen {longest} fits",)


def _smaller_kv_dtype(demand: Demand, groups: Sequence[NodeGroup]) -> tuple[str, ...]:
    if demand.pins.kv_cache_dtype not in (None, "auto"):
        return ()
    smaller = replace(demand, pins=replace(demand.pins, kv_cache_dtype="int8"))
    return ("kvCache.dtype int8 fits",) if _fits(smaller, groups) else ()


def _more_memory(demand: Demand, groups: Sequence[NodeGroup]) -> tuple[str, ...]:
    """CPU: the memory limit that would do, where the user stated a smaller one."""
    if demand.pins.device_memory_bytes is None:
        return ()
    cpu = [group for group in groups if group.accelerator.kind == "CPU"]
    plan = _fits(replace(demand, pins=replace(demand.pins, device_memory_bytes=None)), cpu)
    if plan is None:
        return ()
    return (f"memory {-(-plan.device_memory_bytes >> 20)}Mi fits",)


def _more_gpus(demand: Demand, groups: Sequence[NodeGroup]) -> tuple[str, ...]:
    """More of the products at hand: the smallest count that would do."""
    found: dict[str, str] = {}
    free = replace(demand, pins=_without_parallelism(demand.pins))
    for group in groups:
        name = group.accelerator.name
        if group.accelerator.kind == "CPU" or name in found:
            continue
        per_node = max(8, group.accelerators_per_node)
        larger = replace(group, accelerators_per_node=per_node, nodes=_NODES_TO_SUGGEST)
        plan = _fits(free, [larger])
        if plan is not None:
            found[name] = _describe(plan)
    return tuple(found.values())


def _other_product(demand: Demand, groups: Sequence[NodeGroup]) -> tuple[str, ...]:
    """The smallest product of the table that would do with as many GPUs as a node has."""
    gpus = [group.accelerators_per_node for group in groups if group.accelerator.kind == "GPU"]
    if not gpus:
        return ()
    count = max(size for size in _SIZES_TO_SUGGEST if size <= max(gpus))
    free = replace(demand, pins=_without_parallelism(demand.pins))
    for product in sorted(PRODUCTS, key=lambda row: (row.label_mib, row.label)):
        accelerator = accelerator_from_labels(product.label, product.label_mib)
        plan = _fits(free, [NodeGroup(product.label, accelerator, count, 1)])
        if plan is not None:
            return (_describe(plan),)
    return ()


def _describe(plan: MemoryPlan) -> str:
    limits = plan.limits
    tp, pp = limits.tensor_parallel_size, limits.pipeline_parallel_size
    return f"{plan.gpus_per_replica}x {plan.accelerator.name} (TP={tp}, PP={pp}) fits"


def _without_parallelism(pins: Pins) -> Pins:
    return replace(
        pins, tensor_parallel_size=None, pipeline_parallel_size=None, max_gpus=None, products=()
    )


def _fits(demand: Demand, groups: Sequence[NodeGroup]) -> MemoryPlan | None:
    for group in groups:
        for option in group_options(demand.shape, group, demand.pins):
            outcome = fit_option(demand, group, option)
            if isinstance(outcome, MemoryPlan):
                return outcome
    return None
