"""status.plan: a ServingPlan as the JSON that users and `pagefleet plan` read."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pagefleet_memory import Ledger, Rejection, Speed
from pagefleet_operator.planning.engine_args import share_text

if TYPE_CHECKING:
    from pagefleet_operator.planning.serving_plan import PlanRefusal, ServingPlan

MOST_REJECTED = 16
MOST_NOTES = 16
MOST_NEAREST = 16


def plan_to_status(plan: "ServingPlan") -> dict[str, Any]:
    memory = plan.memory
    status: dict[str, Any] = {
        "hash": plan.plan_hash,
        "inputsHash": plan.inputs_hash,
        "accelerator": _accelerator(plan),
        "chosen": _chosen(plan),
        "ledger": [_stage(ledger) for ledger in memory.stages],
        "kvTokens": memory.kv_tokens,
        "kvBlocks": memory.num_kv_blocks,
        "maxFullLengthSequences": f"{memory.max_full_length_sequences:.1f}",
        "hostMemoryBytes": memory.host_memory_bytes,
        "shmBytes": memory.shm_bytes,
        "startupSeconds": memory.startup_seconds,
        "notes": list(memory.notes[:MOST_NOTES]),
        "rejected": rejected_to_status(plan.rejected),
    }
    if memory.speed is not None:
        status |= _speed(memory.speed)
    if plan.backoff.steps:
        status["notes"] = [plan.backoff.note(), *status["notes"]][:MOST_NOTES]
        status["backoff"] = plan.backoff.to_status()
    return status


def refusal_to_status(refusal: "PlanRefusal") -> dict[str, Any]:
    """status.refusal, which stands where status.plan would."""
    return {
        "reason": refusal.reason,
        "message": refusal.message,
        "nearest": list(refusal.nearest[:MOST_NEAREST]),
        "rejected": rejected_to_status(refusal.rejected),
    }


def rejected_to_status(rejected: tuple[Rejection, ...]) -> list[dict[str, Any]]:
    return [_rejection(rejection) for rejection in rejected[:MOST_REJECTED]]


def rejected_from_status(plan: Mapping[str, Any]) -> tuple[Rejection, ...]:
    """Of a status.plan."""
    return tuple(
        Rejection(entry["option"], entry["reason"], entry["message"], entry.get("shortByBytes"))
        for entry in plan.get("rejected") or ()
    )


def _accelerator(plan: "ServingPlan") -> dict[str, Any]:
    memory = plan.memory
    accelerator: dict[str, Any] = {
        "kind": memory.accelerator.kind,
        "product": memory.accelerator.name,
        "memoryBytes": memory.device_memory_bytes,
        "perReplica": memory.gpus_per_replica if plan.on_gpu else 1,
        "podsPerReplica": memory.pods_per_replica,
    }
    return accelerator if plan.on_gpu else {**accelerator, "cpu": plan.cpu}


def _chosen(plan: "ServingPlan") -> dict[str, Any]:
    limits = plan.memory.limits
    return {
        "tensorParallelSize": limits.tensor_parallel_size,
        "pipelineParallelSize": limits.pipeline_parallel_size,
        "gpuMemoryUtilization": share_text(limits.gpu_memory_utilization),
        "dtype": limits.dtype,
        "kvCacheDtype": limits.kv_cache_dtype,
        "blockSize": limits.block_size,
        "maxModelLen": limits.max_model_len,
        "maxNumSeqs": limits.max_num_seqs,
        "maxNumBatchedTokens": limits.max_num_batched_tokens,
        "swapSpaceBytes": limits.swap_space_bytes,
    }


def _speed(speed: Speed) -> dict[str, Any]:
    return {
        "predictedDecodeTokensPerSecond": round(speed.decode_tokens_per_second),
        "predictedStepMilliseconds": f"{1000 * speed.step_seconds:.1f}",
        "predictedPrefillTokensPerSecond": round(speed.prefill_tokens_per_second),
    }


def _stage(ledger: Ledger) -> dict[str, Any]:
    return {
        "stage": ledger.stage,
        "budgetBytes": ledger.budget_bytes,
        "terms": [{"name": term.name, "bytes": term.bytes} for term in ledger.terms],
    }


def _rejection(rejection: Rejection) -> dict[str, Any]:
    status: dict[str, Any] = {
        "option": rejection.option,
        "reason": rejection.reason,
        "message": rejection.message,
    }
    if rejection.short_by_bytes is not None:
        status["shortByBytes"] = rejection.short_by_bytes
    return status
