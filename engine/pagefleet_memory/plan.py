"""The plan search: from a model, a workload and node groups to the best plan and why not others."""

from collections.abc import Sequence
from dataclasses import dataclass

from pagefleet_memory.demand import Demand
from pagefleet_memory.fitting import Candidate, try_option
from pagefleet_memory.growing import grow, meets_workload
from pagefleet_memory.kv_lever import propose_smaller_cache
from pagefleet_memory.memory_plan import make_plan
from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.options import group_options
from pagefleet_memory.pins_check import invalid_pin, matches_products
from pagefleet_memory.plan_types import Objective, PlanResult, Rejection
from pagefleet_memory.ranking import best_candidate, explain_unchosen, fullest_candidate
from pagefleet_memory.refusal import refuse_invalid, refuse_product, refuse_unfit
from pagefleet_memory.workload import NodeGroup, Pins, Workload

# A reader of the first few entries sees both kinds.
_UNPREFERRED_FIRST = 8


def plan_serving(
    shape: ModelShape,
    workload: Workload,
    groups: Sequence[NodeGroup],
    pins: Pins | None = None,
    *,
    objective: Objective = "MinGPUs",
) -> PlanResult:
    """The best plan over the whole inventory with every option passed over, or a refusal.

    Raises ShapeError for a model that pagefleet's engine cannot run.
    """
    shape.require_engine_support()
    demand = Demand(shape, workload, pins or Pins())
    ordered = sorted(groups, key=lambda group: group.name)
    problem = invalid_pin(demand, ordered)
    if problem:
        return PlanResult(None, (), refuse_invalid(demand, ordered, problem))
    usable = [group for group in ordered if matches_products(group, demand.pins)]
    if not usable:
        return PlanResult(None, (), refuse_product(demand, ordered))
    search = _search(demand, usable, thorough=objective != "MinGPUs")
    if not search.meeting and not search.lacking:
        refusal = refuse_unfit(demand, usable, search.rejected)
        return PlanResult(None, _closest_first(search.rejected), refusal)
    best = _best(demand, search, objective)
    others = explain_unchosen(
        demand, best, meeting=[*search.meeting, *search.larger], lacking=search.lacking
    )
    rejected = (
        *propose_smaller_cache(demand, usable, best, objective),
        *others[:_UNPREFERRED_FIRST],
        *search.rejected,
        *others[_UNPREFERRED_FIRST:],
    )
    return PlanResult(make_plan(demand, grow(demand, best)), rejected, None)


@dataclass(frozen=True, slots=True)
class _Search:
    """Options that hold the workload, those that hold less, ones beyond them, and the rest."""

    meeting: list[Candidate]
    lacking: list[Candidate]
    larger: list[Candidate]
    rejected: list[Rejection]


def _search(demand: Demand, groups: Sequence[NodeGroup], *, thorough: bool) -> _Search:
    """Each group's options up to the smallest that meets the workload, and the next one.

    With `thorough` all of them compete, grown, because then speed decides and not their number.
    """
    search = _Search([], [], [], [])
    for group in groups:
        met = False
        for option in group_options(demand.shape, group, demand.pins):
            outcome = try_option(demand, group, option)
            if isinstance(outcome, Rejection):
                search.rejected.append(outcome)
                continue
            if met and not thorough:
                search.larger.append(outcome)
                break
            met = meets_workload(demand, outcome)
            found = search.meeting if met else search.lacking
            found.append(grow(demand, outcome) if thorough else outcome)
    return search


def _best(demand: Demand, search: _Search, objective: Objective) -> Candidate:
    if not search.meeting:
        return fullest_candidate(demand, search.lacking)
    return best_candidate(demand, search.meeting, objective)


def _closest_first(rejected: Sequence[Rejection]) -> tuple[Rejection, ...]:
    unknown = 1 << 62
    return tuple(sorted(rejected, key=lambda item: item.short_by_bytes or unknown))
