"""Which of the candidates that fit is best, and in words why the others are not."""

from collections.abc import Sequence

from pagefleet_memory.batching import context_load
from pagefleet_memory.demand import Demand
from pagefleet_memory.fitting import Candidate
from pagefleet_memory.plan_types import Objective, Rejection
from pagefleet_memory.speed import decode_step_seconds


def best_candidate(demand: Demand, found: Sequence[Candidate], objective: Objective) -> Candidate:
    """The first by the objective; ties go to fewer GPUs, more KV tokens, then the name."""
    return min(
        found,
        key=lambda candidate: (
            _score(demand, candidate, objective),
            candidate.gpus,
            -candidate.kv_tokens,
            candidate.group.name,
        ),
    )


def explain_unchosen(
    chosen: Candidate, found: Sequence[Candidate], objective: Objective
) -> list[Rejection]:
    """One entry for each other candidate."""
    return [
        Rejection(
            other.option.describe(other.group),
            "NotPreferred",
            _difference(chosen, other, objective),
        )
        for other in found
        if other is not chosen
    ]


def _score(demand: Demand, candidate: Candidate, objective: Objective) -> float:
    """Lower is better."""
    if objective == "MinGPUs":
        return candidate.gpus
    limits = candidate.limits
    batch = 1 if objective == "Latency" else limits.max_num_seqs
    seconds = decode_step_seconds(
        demand.shape,
        candidate.accelerator,
        limits,
        batch=batch,
        context_tokens=int(context_load(demand.workload, limits.max_model_len).mean),
    )
    return seconds if objective == "Latency" else seconds * max(1, candidate.gpus) / batch


def _difference(chosen: Candidate, other: Candidate, objective: Objective) -> str:
    if objective != "MinGPUs":
        return f"also fits, but ranks lower for {objective}"
    if other.gpus > chosen.gpus:
        return f"also fits, with {other.gpus} GPUs per replica where {chosen.gpus} suffice"
    if other.group is chosen.group:
        return "also fits, with more pipeline stages for the same GPUs"
    kept = f"{chosen.group.name} holds {chosen.kv_tokens}"
    return f"also fits, with {other.kv_tokens} KV tokens per replica where {kept}"
