"""The plan search: from a model, a workload and node groups to the best plan and why not others."""

from collections.abc import Sequence
from dataclasses import dataclass

from pagefleet_memory.demand import Demand
from pagefleet_memory.errors import LimitError
from pagefleet_memory.fitting import Candidate, fit_option, grow
from pagefleet_memory.memory_plan import make_plan
from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.options import Option, group_options
from pagefleet_memory.pins_check import invalid_pin, matches_products
from pagefleet_memory.plan_types import Objective, PlanResult, Refusal, Rejection
from pagefleet_memory.ranking import best_candidate, explain_unchosen
from pagefleet_memory.refusal import refuse_unfit
from pagefleet_memory.workload import NodeGroup, Pins, Workload

_MOST_REJECTED = 16
_MOST_UNPREFERRED = 8


def plan_serving(
    shape: ModelShape,
    workload: Workload,
    groups: Sequence[NodeGroup],
    pins: Pins | None = None,
    *,
    objective: Objective = "MinGPUs",
) -> PlanResult:
    """The best plan over the whole inventory, the options passed over, or a refusal.

    Raises ShapeError for a model that pagefleet's engine cannot run.
    """
    shape.require_engine_support()
    demand = Demand(shape, workload, pins or Pins())
    ordered = sorted(groups, key=lambda group: group.name)
    problem = invalid_pin(demand, ordered)
    if problem:
        return PlanResult(None, (), Refusal("InvalidPin", problem))
    usable = [group for group in ordered if matches_products(group, demand.pins)]
    if not usable:
        return PlanResult(None, (), _no_accelerator(ordered, demand.pins))
    search = _search(demand, usable, thorough=objective != "MinGPUs")
    if not search.first:
        refusal = refuse_unfit(demand, usable, search.rejected)
        return PlanResult(None, tuple(search.rejected[:_MOST_REJECTED]), refusal)
    chosen = best_candidate(demand, search.first, objective)
    others = explain_unchosen(chosen, [*search.first, *search.larger], objective)
    rejected = (*others[:_MOST_UNPREFERRED], *search.rejected)[:_MOST_REJECTED]
    return PlanResult(make_plan(demand, chosen), rejected, None)


@dataclass(frozen=True, slots=True)
class _Search:
    """What was found: candidates that compete, larger ones beside them, and what does not fit."""

    first: list[Candidate]
    larger: list[Candidate]
    rejected: list[Rejection]


def _search(demand: Demand, groups: Sequence[NodeGroup], *, thorough: bool) -> _Search:
    """Each group's smallest option that fits and the next one; all of them where `thorough`."""
    search = _Search([], [], [])
    for group in groups:
        competes = True
        for option in group_options(demand.shape, group, demand.pins):
            outcome = _try_option(demand, group, option)
            if isinstance(outcome, Rejection):
                search.rejected.append(outcome)
                continue
            if competes:
                search.first.append(grow(demand, outcome))
                competes = thorough
                continue
            search.larger.append(outcome)
            break
    return search


def _try_option(demand: Demand, group: NodeGroup, option: Option) -> Candidate | Rejection:
    try:
        return fit_option(demand, group, option)
    except LimitError as error:
        return Rejection(option.describe(group), "InvalidPin", str(error))


def _no_accelerator(groups: Sequence[NodeGroup], pins: Pins) -> Refusal:
    if not groups:
        return Refusal("NoAccelerator", "no node offers an accelerator that can be planned")
    names = ", ".join(sorted({group.accelerator.name for group in groups}))
    wanted = ", ".join(pins.products)
    return Refusal("NoAccelerator", f"no node offers {wanted}", (f"available: {names}",))
