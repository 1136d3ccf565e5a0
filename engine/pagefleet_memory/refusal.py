"""The refusal of what fits nowhere: the closest option's numbers, and what would make it fit."""

from collections.abc import Sequence

from pagefleet_memory.demand import Demand
from pagefleet_memory.engine_split import whole_stack, whole_tensors
from pagefleet_memory.nearest import nearest_changes
from pagefleet_memory.plan_types import Refusal, Rejection
from pagefleet_memory.workload import NodeGroup


def refuse_unfit(
    demand: Demand, groups: Sequence[NodeGroup], rejected: Sequence[Rejection]
) -> Refusal:
    """Where options were tried, or the pins left none."""
    changes = nearest_changes(demand, groups)
    if not rejected:
        return Refusal("InvalidPin", _no_option(demand, groups), changes)
    short = [item for item in rejected if item.short_by_bytes is not None]
    if not short:
        return Refusal(rejected[0].reason, rejected[0].message, changes)
    closest = min(short, key=lambda item: item.short_by_bytes or 0)
    unsplit = [each for each in (whole_tensors(demand.shape), whole_stack(demand.shape)) if each]
    message = "; ".join((f"{closest.option} {closest.message}", *unsplit))
    return Refusal("DoesNotFit", message, changes)


def refuse_invalid(demand: Demand, groups: Sequence[NodeGroup], problem: str) -> Refusal:
    """Where a pin cannot be kept on any accelerator."""
    return Refusal("InvalidPin", problem, nearest_changes(demand, groups))


def refuse_product(demand: Demand, groups: Sequence[NodeGroup]) -> Refusal:
    """Where no node offers a product that was named."""
    if not groups:
        return Refusal("NoAccelerator", "no node offers an accelerator that can be planned")
    names = ", ".join(sorted({group.accelerator.name for group in groups}))
    wanted = ", ".join(demand.pins.products)
    message = f"no node offers {wanted}; available: {names}"
    return Refusal("NoAccelerator", message, nearest_changes(demand, groups))


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
