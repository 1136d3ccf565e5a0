"""The KV cache's number format as a lever: where 8 bits would save GPUs, the plan says so.

The plan itself keeps the format of the computation: to round a cache is the user's decision.
"""

from collections.abc import Sequence
from dataclasses import replace

from pagefleet_memory.demand import Demand
from pagefleet_memory.fitting import Candidate, try_option
from pagefleet_memory.growing import grow, meets_workload
from pagefleet_memory.options import group_options
from pagefleet_memory.plan_types import Objective, Rejection
from pagefleet_memory.workload import NodeGroup

# int8 has a scale per token and head and runs on every GPU; fp8 takes the same bytes and rounds
# more coarsely. The cost is that of SmolLM2-135M; llama.cpp#7412 has 0.04 percent for Llama-3-8B.
SMALLER_KV_DTYPE = "int8"
SMALLER_KV_COST = (
    "it raised perplexity by 0.07 percent where it was measured (bench/results/kv_quality.md)"
)


def may_propose(demand: Demand) -> bool:
    """Whether the cache's format is open."""
    return demand.pins.kv_cache_dtype in (None, "auto")


def propose_smaller_cache(
    demand: Demand, groups: Sequence[NodeGroup], chosen: Candidate, objective: Objective
) -> tuple[Rejection, ...]:
    """The plan on fewer GPUs that an 8-bit cache would allow, and what it costs; or nothing."""
    if not may_propose(demand) or chosen.gpus <= 1 or objective != "MinGPUs":
        return ()
    pins = replace(demand.pins, kv_cache_dtype=SMALLER_KV_DTYPE, max_gpus=chosen.gpus - 1)
    smaller = Demand(demand.shape, demand.workload, pins)
    found = [
        candidate
        for group in groups
        if (candidate := _first_that_meets(smaller, group)) is not None
    ]
    if not found:
        return ()
    best = min(found, key=lambda item: (item.gpus, -item.kv_tokens, item.group.name))
    return (_proposal(grow(smaller, best), chosen),)


def _first_that_meets(demand: Demand, group: NodeGroup) -> Candidate | None:
    for option in group_options(demand.shape, group, demand.pins):
        outcome = try_option(demand, group, option)
        if isinstance(outcome, Candidate) and meets_workload(demand, outcome):
            return outcome
    return None


def _proposal(smaller: Candidate, chosen: Candidate) -> Rejection:
    return Rejection(
        f"{smaller.option.describe(smaller.group)} with kvCache.dtype {SMALLER_KV_DTYPE}",
        "NotPreferred",
        f"would need {_gpus(smaller.gpus)} instead of {chosen.gpus} and hold {smaller.kv_tokens}"
        f" KV tokens; set it to take it: {SMALLER_KV_COST}",
    )


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
