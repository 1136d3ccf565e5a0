"""The plan search: from a model, a workload and node groups to the best plan and why not others."""

from collections.abc import Sequence

from pagefleet_memory.errors import LimitError
from pagefleet_memory.fitting import Demand, fit_option
from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.options import Option, group_options
from pagefleet_memory.pins_check import invalid_pin, matches_products
from pagefleet_memory.plan_types import MemoryPlan, Objective, PlanResult, Refusal, Rejection
from pagefleet_memory.ranking import best_plan, explain_unchosen
from pagefleet_memory.refusal import refuse_unfit
from pagefleet_memory.workload import NodeGroup, Pins, Workload

_MOST_REJECTED = 16


def plan_serving(
    shape: ModelShape,
    workload: Workload,
    groups: Sequence[NodeGroup],
    pins: Pins | None = None,
    *,
    objective: Objective = "MinGPUs",
) -> PlanResult:
    """The best plan over the whole inventory, the options passed over, or a refusal."""
    demand = Demand(shape, workload, pins or Pins())
    problem = invalid_pin(demand)
    if problem:
        return PlanResult(None, (), Refusal("InvalidPin", problem))
    ordered = sorted(groups, key=lambda group: group.name)
    usable = [group for group in ordered if matches_products(group, demand.pins)]
    if not usable:
        return PlanResult(None, (), _no_accelerator(ordered, demand.pins))
    found, rejected = _search(demand, usable, thorough=objective != "MinGPUs")
    if not found:
        return _refused(demand, usable, rejected)
    chosen = best_plan(shape, workload, found, objective)
    unchosen = explain_unchosen(chosen, found, objective)
    return PlanResult(chosen, tuple((*rejected, *unchosen)[:_MOST_REJECTED]), None)


def _search(
    demand: Demand, groups: Sequence[NodeGroup], *, thorough: bool
) -> tuple[dict[str, MemoryPlan], list[Rejection]]:
    """Plans by option; a group's larger options are looked at only where they may be better."""
    found: dict[str, MemoryPlan] = {}
    rejected: list[Rejection] = []
    for group in groups:
        for option in group_options(demand.shape, group, demand.pins):
            outcome = _try_option(demand, group, option)
            if isinstance(outcome, Rejection):
                rejected.append(outcome)
                continue
            found[option.describe(group)] = outcome
            if not thorough:
                break
    return found, rejected


def _try_option(demand: Demand, group: NodeGroup, option: Option) -> MemoryPlan | Rejection:
    try:
        return fit_option(demand, group, option)
    except LimitError as error:
        return Rejection(option.describe(group), "InvalidPin", str(error))


def _no_accelerator(groups: Sequence[NodeGroup], pins: Pins) -> Refusal:
    if not groups:
        return Refusal("NoAccelerator", "no node offers an accelerator")
    names = ", ".join(sorted({group.accelerator.name for group in groups}))
    wanted = ", ".join(pins.products)
    return Refusal("NoAccelerator", f"no node offers {wanted}", (f"available: {names}",))


def _refused(
    demand: Demand, groups: Sequence[NodeGroup], rejected: Sequence[Rejection]
) -> PlanResult:
    return PlanResult(
        None, tuple(rejected[:_MOST_REJECTED]), refuse_unfit(demand, groups, rejected)
    )
