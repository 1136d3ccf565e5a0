"""The refusal of a model that fits nowhere, with the nearest changes that would make it fit."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pagefleet_memory.accelerator import accelerator_from_labels
from pagefleet_memory.demand import Demand
from pagefleet_memory.errors import LimitError
from pagefleet_memory.fitting import (
    Candidate,
    device,
    fit_option,
    grow,
    longest_model_len,
    smallest_limits,
)
from pagefleet_memory.options import group_options
from pagefleet_memory.plan_types import Refusal, Rejection
from pagefleet_memory.products import PRODUCTS
from pagefleet_memory.units import MIB
from pagefleet_memory.workload import NodeGroup

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
        *_more_memory(demand, groups),
        *_more_gpus(demand, groups),
        *_other_product(demand, groups),
    )
    return Refusal(
        "DoesNotFit", f"{closest.option} {closest.message}", tuple(dict.fromkeys(nearest))
    )


def _no_option(demand: Demand, groups: Sequence[NodeGroup]) -> str:
    pins = demand.pins
    stated = {
        "tensor_parallel_size": pins.tensor_parallel_size,
        "pipeline_parallel_size": pins.pipeline_parallel_size,
        "max_gpus": pins.max_gpus,
    }
    wanted = ", ".join(f"{name} {value}" for name, value in stated.items() if value is not None)
    offers = ", ".join(f"{g.name}: {g.nodes} nodes of {g.accelerators_per_node}" for g in groups)
    return f"no node group can be split as asked ({wanted}); available: {offers}"


def _shorter_context(demand: Demand, groups: Sequence[NodeGroup]) -> tuple[str, ...]:
    """The longest context that fits on the largest options of the inventory."""
    longest = 0
    for group in _distinct(groups):
        accelerator = device(demand, group)
        options = group_options(demand.shape, group, demand.pins)
        most = max((option.gpus for option in options), default=0)
        for option in options:
            if option.gpus == most:
                try:
                    limits = smallest_limits(demand, accelerator, option)
                except LimitError:  # a pinned number format that this accelerator lacks
                    continue
                longest = max(longest, longest_model_len(demand, accelerator, limits))
    if longest == 0 or longest < (demand.pins.min_kv_tokens or 0):
        return ()
    return (f"maxModelLen {longest} fits",)


def _more_memory(demand: Demand, groups: Sequence[NodeGroup]) -> tuple[str, ...]:
    """CPU: the memory limit that would do, where the user stated a smaller one."""
    if demand.pins.device_memory_bytes is None:
        return ()
    cpu = [group for group in groups if group.accelerator.kind == "CPU"]
    free = _repinned(demand, device_memory_bytes=None)
    found = _fits(free, cpu)
    if found is None:
        return ()
    return (f"memory {grow(free, found).accelerator.memory_bytes // MIB}Mi fits",)


def _more_gpus(demand: Demand, groups: Sequence[NodeGroup]) -> tuple[str, ...]:
    """More of the products at hand: the smallest count that would do."""
    found: dict[str, str] = {}
    free = _repinned(demand, tensor_parallel_size=None, pipeline_parallel_size=None, max_gpus=None)
    for group in _distinct(groups):
        name = group.accelerator.name
        if group.accelerator.kind == "CPU" or name in found:
            continue
        per_node = max(8, group.accelerators_per_node)
        larger = replace(group, accelerators_per_node=per_node, nodes=_NODES_TO_SUGGEST)
        candidate = _fits(free, [larger])
        if candidate is not None:
            found[name] = _describe(candidate)
    return tuple(found.values())


def _other_product(demand: Demand, groups: Sequence[NodeGroup]) -> tuple[str, ...]:
    """The smallest product of the table that would do with as many GPUs as a node has."""
    gpus = [group.accelerators_per_node for group in groups if group.accelerator.kind == "GPU"]
    if not gpus:
        return ()
    count = max(size for size in _SIZES_TO_SUGGEST if size <= max(gpus))
    free = _repinned(
        demand, tensor_parallel_size=None, pipeline_parallel_size=None, max_gpus=None, products=()
    )
    for product in sorted(PRODUCTS, key=lambda row: (row.label_mib, row.label)):
        accelerator = accelerator_from_labels(product.label, product.label_mib)
        candidate = _fits(free, [NodeGroup(product.label, accelerator, count, 1)])
        if candidate is not None:
            return (_describe(candidate),)
    return ()


def _describe(candidate: Candidate) -> str:
    return f"{candidate.option.describe(candidate.group).split(': ')[1]} fits"


def _repinned(demand: Demand, **changes: object) -> Demand:
    return Demand(demand.shape, demand.workload, replace(demand.pins, **changes))  # type: ignore[arg-type]


def _distinct(groups: Sequence[NodeGroup]) -> Iterable[NodeGroup]:
    """One group of each accelerator and size."""
    seen = {(g.accelerator, g.accelerators_per_node, g.nodes): g for g in reversed(groups)}
    return reversed(seen.values())


def _fits(demand: Demand, groups: Sequence[NodeGroup]) -> Candidate | None:
    for group in _distinct(groups):
        for option in group_options(demand.shape, group, demand.pins):
            try:
                outcome = fit_option(demand, group, option)
            except LimitError:
                continue
            if isinstance(outcome, Candidate):
                return outcome
    return None
