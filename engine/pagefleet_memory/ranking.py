"""Which of the plans that fit is best, and in words why the others are not."""

from collections.abc import Mapping

from pagefleet_memory.batching import context_load
from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.plan_types import MemoryPlan, Objective, Rejection
from pagefleet_memory.speed import decode_step_seconds
from pagefleet_memory.workload import Workload


def best_plan(
    shape: ModelShape, workload: Workload, found: Mapping[str, MemoryPlan], objective: Objective
) -> MemoryPlan:
    """The first by the objective; ties go to fewer accelerators, more KV tokens, then the name."""

    def order(item: tuple[str, MemoryPlan]) -> tuple[float, float, float, str]:
        option, plan = item
        return (
            _score(shape, workload, plan, objective),
            plan.gpus_per_replica,
            -plan.kv_tokens,
            option,
        )

    return min(found.items(), key=order)[1]


def explain_unchosen(
    chosen: MemoryPlan, found: Mapping[str, MemoryPlan], objective: Objective
) -> list[Rejection]:
    """One entry for each plan that fits as well."""
    return [
        Rejection(option, "NotPreferred", _difference(chosen, plan, objective))
        for option, plan in found.items()
        if plan is not chosen
    ]


def _score(shape: ModelShape, workload: Workload, plan: MemoryPlan, objective: Objective) -> float:
    """Lower is better."""
    if objective == "MinGPUs":
        return plan.gpus_per_replica
    context = int(context_load(workload, plan.limits.max_model_len).mean)
    batch = 1 if objective == "Latency" else plan.limits.max_num_seqs
    seconds = decode_step_seconds(
        shape, plan.accelerator, plan.limits, batch=batch, context_tokens=context
    )
    if objective == "Latency":
        return seconds
    return seconds * max(1, plan.gpus_per_replica) / batch


def _difference(chosen: MemoryPlan, plan: MemoryPlan, objective: Objective) -> str:
    if objective != "MinGPUs":
        return f"also fits, but is slower by the objective {objective}"
    if plan.gpus_per_replica > chosen.gpus_per_replica:
        return (
            f"also fits, with {plan.gpus_per_replica} GPUs per replica;"
            f" {chosen.gpus_per_replica} suffice on {chosen.group}"
        )
    return f"also fits, with {plan.kv_tokens} KV tokens; {chosen.group} holds {chosen.kv_tokens}"
