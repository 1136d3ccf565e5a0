"""The full plan of a chosen candidate: ledgers, what the pod needs, and notes for the user."""

from pagefleet_memory.batching import context_load, mean_prompt_tokens
from pagefleet_memory.demand import Demand
from pagefleet_memory.engine_split import whole_stack, whole_tensors
from pagefleet_memory.engine_weights import unread_weights
from pagefleet_memory.fitting import Candidate
from pagefleet_memory.host import host_memory_bytes, shm_bytes, startup_seconds
from pagefleet_memory.kv_cache import blocks_for_tokens, num_kv_blocks
from pagefleet_memory.ledger import build_stage_ledgers
from pagefleet_memory.plan_types import MemoryPlan
from pagefleet_memory.speed import Speed, predict_speed


def make_plan(demand: Demand, candidate: Candidate) -> MemoryPlan:
    """Everything that status, pods and engines take from a plan."""
    limits, shape = candidate.limits, demand.shape
    accelerator, pods = candidate.accelerator, candidate.option.pods
    stages = build_stage_ledgers(shape, accelerator, limits)
    num_blocks = num_kv_blocks(stages, shape, limits)
    per_request = blocks_for_tokens(shape, limits, limits.max_model_len)
    return MemoryPlan(
        group=candidate.group.name,
        accelerator=accelerator,
        limits=limits,
        stages=stages,
        num_kv_blocks=num_blocks,
        kv_tokens=num_blocks * limits.block_size,
        max_full_length_sequences=round(num_blocks / per_request, 2),
        device_memory_bytes=accelerator.memory_bytes,
        host_memory_bytes=host_memory_bytes(accelerator, limits, pods=pods),
        shm_bytes=shm_bytes(limits, pods=pods),
        startup_seconds=startup_seconds(shape, accelerator, limits),
        gpus_per_replica=candidate.gpus,
        pods_per_replica=pods,
        speed=_speed(demand, candidate),
        notes=tuple(_notes(demand, candidate)),
    )


def _speed(demand: Demand, candidate: Candidate) -> Speed | None:
    """With every slot in use, each by a request of the mean length."""
    limits, workload = candidate.limits, demand.workload
    held = max(1, candidate.kv_tokens // limits.max_num_seqs)
    return predict_speed(
        demand.work,
        candidate.accelerator,
        limits,
        batch=limits.max_num_seqs,
        context_tokens=min(held, int(context_load(workload, limits.max_model_len).mean)),
        prompt_tokens=mean_prompt_tokens(workload, limits.max_model_len),
    )


def _notes(demand: Demand, candidate: Candidate) -> list[str]:
    shape, limits, group = demand.shape, candidate.limits, candidate.group
    notes = list(shape.remarks)
    if demand.stated_model_len is None:
        notes.append(f"maxModelLen is not stated: {limits.max_model_len} tokens are planned")
    concurrency = demand.workload.concurrency or 1
    if limits.max_num_seqs < concurrency:
        notes.append(
            f"runs {limits.max_num_seqs} of the {concurrency} concurrent requests of the workload:"
            " the others wait, or go to more replicas"
        )
    if limits.dtype != shape.dtype:
        notes.append(f"weights stored as {shape.dtype} run as {limits.dtype}")
    if limits.tensor_parallel_size > 1 and not group.nvlink:
        notes.append(f"{group.name} has no NVLink: tensor parallelism runs over PCIe")
    copies = limits.tensor_parallel_size // shape.num_key_value_heads
    if copies > 1 and not shape.is_mla:
        notes.append(f"{shape.num_key_value_heads} key-value heads: each is kept {copies} times")
    if shape.is_mla and limits.tensor_parallel_size > 1:
        notes.append("the latent KV cache is kept whole on every tensor-parallel rank")
    if shape.sliding_window:
        notes.append(f"layers with a window of {shape.sliding_window} tokens keep full length")
    if group.accelerators_per_node > 1 or limits.world_size > 1:
        notes += [each for each in (whole_tensors(shape), whole_stack(shape)) if each]
    if unread := unread_weights(shape):
        notes.append(f"this version of the engine does not read {unread} weights")
    if limits.kv_cache_dtype == "int4":
        notes.append("the 4-bit KV cache changes answers, most of small models: measure yours")
    if limits.swap_space_bytes == 0:
        notes.append("preempted requests are recomputed: no host memory is set aside for swapping")
    return notes
