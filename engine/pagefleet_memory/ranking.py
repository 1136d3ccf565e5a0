"""Which of the candidates that fit is best, and in words why the others are not."""

from collections.abc import Sequence

from pagefleet_memory.batching import context_load
from pagefleet_memory.demand import Demand
from pagefleet_memory.fitting import Candidate
from pagefleet_memory.growing import share_held
from pagefleet_memory.plan_types import Objective, Rejection
from pagefleet_memory.speed import decode_step_seconds


def best_candidate(demand: Demand, found: Sequence[Candidate], objective: Objective) -> Candidate:
    """The first by the objective; ties go to fewer GPUs, more KV tokens, then the name."""
    return min(found, key=lambda item: (_score(demand, item, objective), *_ties(item)))


def fullest_candidate(demand: Demand, found: Sequence[Candidate]) -> Candidate:
    """Where none holds the whole workload: the GPUs that hold most of it, in fewest stages."""
    fullest = min(found, key=lambda item: (-share_held(demand, item), *_ties(item)))
    alike = [item for item in found if item.group is fullest.group and item.gpus == fullest.gpus]
    return min(alike, key=lambda item: (item.option.pods, item.option.pipeline_parallel_size))


def explain_unchosen(
    demand: Demand,
    chosen: Candidate,
    *,
    meeting: Sequence[Candidate],
    lacking: Sequence[Candidate],
) -> list[Rejection]:
    """One entry for each other candidate."""
    reasons = [(other, _difference(chosen, other)) for other in meeting]
    wanted = demand.wanted_requests
    reasons += [
        (other, f"fits, but holds {share_held(demand, other)} of the {wanted} concurrent requests")
        for other in lacking
    ]
    return [
        Rejection(other.option.describe(other.group), "NotPreferred", reason)
        for other, reason in reasons
        if other is not chosen
    ]


def _ties(candidate: Candidate) -> tuple[int, int, str, int]:
    stages = candidate.limits.pipeline_parallel_size
    return candidate.gpus, -candidate.kv_tokens, candidate.group.name, stages


def _score(demand: Demand, candidate: Candidate, objective: Objective) -> float:
    """Lower is better."""
    if objective == "MinGPUs":
        return candidate.gpus
    limits = candidate.limits
    batch = 1 if objective == "Latency" else limits.max_num_seqs
    seconds = decode_step_seconds(
        demand.work,
        candidate.accelerator,
        limits,
        batch=batch,
        context_tokens=int(context_load(demand.workload, limits.max_model_len).mean),
    )
    return seconds if objective == "Latency" else seconds * max(1, candidate.gpus) / batch


def _difference(chosen: Candidate, other: Candidate) -> str:
    if other.gpus > chosen.gpus:
        return f"also fits, with {other.gpus} GPUs per replica where {chosen.gpus} suffice"
    if other.gpus < chosen.gpus:
        return f"also fits, with {other.gpus} GPUs per replica, and is slower"
    if other.group is chosen.group:
        return "also fits, with more pipeline stages for the same GPUs"
    percent = 100 * other.kv_tokens // chosen.kv_tokens
    return f"also fits, with {percent} % of the KV tokens that {chosen.group.name} holds"
