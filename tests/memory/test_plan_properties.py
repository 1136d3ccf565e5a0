"""Properties of the plan search: typed errors only, monotone in memory and context, within budget.

Inventories are of one product with its memory varied, so that memory alone decides; what varies
beside it is the model, the workload and the pins.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pagefleet_memory import (
    Accelerator,
    MemoryModelError,
    MemoryPlan,
    NodeGroup,
    Pins,
    PlanResult,
    TokenDistribution,
    Workload,
    accelerator_from_labels,
    blocks_for_tokens,
    kv_block_bytes,
    plan_serving,
)
from pagefleet_memory.product_names import resolve_product
from tests.memory.memory_builders import (
    GIB,
    LLAMA_3_8B,
    LLAMA_3_70B,
    SMOLLM2_135M,
    gpu,
    shape,
)

# Machines differ in speed, and time is not what is tested.
_RELAXED = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
_MODELS = [shape(config) for config in (LLAMA_3_8B, LLAMA_3_70B, SMOLLM2_135M)]
_MODEL = st.sampled_from(_MODELS)
_MEMORY = st.integers(2_000, 200_000)
_LENGTHS = st.builds(
    lambda p50, more: TokenDistribution(p50, p50 + more), st.integers(1, 4000), st.integers(0, 8000)
)
_WORKLOAD = st.builds(
    lambda max_model_len, prefix, **rest: Workload(
        max_model_len=max_model_len,
        shared_prefix_tokens=min(prefix, max_model_len - 1),
        **rest,
    ),
    max_model_len=st.integers(1, 8192),
    concurrency=st.none() | st.integers(1, 300),
    request_rate=st.none() | st.floats(0.01, 100),
    input_tokens=st.none() | _LENGTHS,
    output_tokens=st.none() | _LENGTHS,
    prefix=st.integers(0, 5000),
)
_NUMBERS = st.none() | st.integers(-2, 1 << 52) | st.floats() | st.booleans() | st.text(max_size=4)


def _group(memory_mib: int) -> NodeGroup:
    """An H100 with another amount of memory: its speed is known, so rates and steps count."""
    accelerator: Accelerator = replace(gpu("H100"), memory_bytes=memory_mib << 20)
    return NodeGroup("g", accelerator, 8, 2, nvlink=True)


def _plan(model: Any, workload: Workload, memory_mib: int, pins: Pins | None = None) -> PlanResult:
    return plan_serving(model, workload, [_group(memory_mib)], pins)


def _rank(plan: MemoryPlan, workload: Workload) -> tuple[int, int]:
    """Lower is better: of the requests wanted at once those that are not run, then GPUs."""
    wanted = workload.concurrency or 1
    return max(0, wanted - plan.limits.max_num_seqs), plan.gpus_per_replica


@_RELAXED
@given(model=_MODEL, workload=_WORKLOAD, memory_mib=_MEMORY, more_mib=st.integers(1, 50_000))
def test_more_memory_never_gives_a_worse_plan(
    model: Any, workload: Workload, memory_mib: int, more_mib: int
) -> None:
    small = _plan(model, workload, memory_mib).chosen
    if small is None:
        return
    large = _plan(model, workload, memory_mib + more_mib).chosen
    assert large is not None
    assert _rank(large, workload) <= _rank(small, workload)
    if large.gpus_per_replica == small.gpus_per_replica:
        assert large.limits.max_num_seqs >= small.limits.max_num_seqs


@_RELAXED
@given(model=_MODEL, workload=_WORKLOAD, more=st.integers(1, 8192), memory_mib=_MEMORY)
def test_a_longer_context_never_gives_a_better_plan(
    model: Any, workload: Workload, more: int, memory_mib: int
) -> None:
    """Without a concurrency: it never needs fewer GPUs."""
    tokens = (workload.max_model_len or 1) + more
    longer = replace(workload, max_model_len=min(tokens, model.max_position_embeddings))
    long_plan = _plan(model, longer, memory_mib).chosen
    if long_plan is None:
        return
    short_plan = _plan(model, workload, memory_mib).chosen
    assert short_plan is not None
    assert _rank(short_plan, workload) <= _rank(long_plan, longer)


@_RELAXED
@given(
    model=_MODEL,
    workload=_WORKLOAD,
    memory_mib=_MEMORY,
    kv_dtype=st.sampled_from([None, "int8", "fp8_e4m3"]),
    objective=st.sampled_from(["MinGPUs", "Throughput", "Latency"]),
)
def test_a_plan_never_exceeds_its_own_budget(
    model: Any, workload: Workload, memory_mib: int, kv_dtype: str | None, objective: Any
) -> None:
    pins = Pins(kv_cache_dtype=kv_dtype)
    chosen = plan_serving(model, workload, [_group(memory_mib)], pins, objective=objective).chosen
    if chosen is None:
        return
    limits = chosen.limits
    for ledger in chosen.stages:
        assert sum(term.bytes for term in ledger.terms) == ledger.budget_bytes
        assert ledger.budget_bytes <= chosen.accelerator.memory_bytes
        block = kv_block_bytes(model, limits, stage=ledger.stage)
        assert chosen.num_kv_blocks * block <= ledger.kv_pool_bytes
    needed = blocks_for_tokens(model, limits, limits.max_model_len)
    assert chosen.num_kv_blocks >= needed
    assert limits.max_num_seqs <= limits.max_num_batched_tokens
    assert chosen.gpus_per_replica == limits.world_size


def test_the_same_question_has_the_same_answer() -> None:
    for model in _MODELS:
        first, second = (_plan(model, Workload(concurrency=20), 40_000) for _ in range(2))
        assert first == second


@_RELAXED
@given(
    model=_MODEL,
    workload=_WORKLOAD,
    memory_mib=st.integers(2_000, 60_000),
    pins=st.builds(
        Pins,
        max_gpus=st.none() | st.integers(1, 4),
        max_num_seqs=st.none() | st.integers(1, 512),
        min_kv_tokens=st.none() | st.integers(1, 10**6),
        gpu_memory_utilization=st.none() | st.floats(0.5, 1.0),
    ),
)
def test_whatever_a_refusal_proposes_gives_a_plan(
    model: Any, workload: Workload, memory_mib: int, pins: Pins
) -> None:
    refusal = _plan(model, workload, memory_mib, pins).refusal
    for change in refusal.changes if refusal else ():
        again = plan_serving(change.shape, change.workload, change.groups, change.pins)
        assert again.chosen is not None, change.message


@_RELAXED
@given(
    product=st.text(max_size=30)
    | st.sampled_from(["NVIDIA-L4", "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "Tesla-T4-SHARED"]),
    memory_mib=_NUMBERS,
)
@example(product="NVIDIA-L4", memory_mib=48_000)
def test_a_bad_label_raises_only_memory_model_errors(product: str, memory_mib: Any) -> None:
    try:
        accelerator_from_labels(product, memory_mib)
    except MemoryModelError as error:
        assert error.field
    try:
        assert accelerator_from_labels(resolve_product(product), None).memory_bytes > GIB
    except MemoryModelError as error:
        assert error.field


@_RELAXED
@given(name=st.sampled_from(list(Workload.__dataclass_fields__)), value=_NUMBERS)
def test_a_bad_workload_raises_only_memory_model_errors(name: str, value: Any) -> None:
    if name in ("input_tokens", "output_tokens"):
        value = None
    try:
        workload = replace(Workload(), **{name: value})
        plan_serving(_MODELS[0], workload, [_group(80_000)])
    except MemoryModelError as error:
        assert error.field == name


@_RELAXED
@given(p50=_NUMBERS, p95=_NUMBERS)
def test_bad_lengths_raise_only_memory_model_errors(p50: Any, p95: Any) -> None:
    try:
        lengths = TokenDistribution(p50, p95)
        workload = Workload(max_model_len=4096, input_tokens=lengths, output_tokens=lengths)
        assert plan_serving(_MODELS[0], workload, [_group(80_000)]).chosen is not None
    except MemoryModelError as error:
        assert error.field in ("p50", "p95")


@pytest.mark.parametrize(("per_node", "nodes"), [(0, 1), (-1, 1), (1, 0), (8, True), (2.0, 1)])
def test_an_inventory_without_gpus_is_refused(per_node: Any, nodes: Any) -> None:
    with pytest.raises(MemoryModelError, match="must be an integer >= 1"):
        NodeGroup("g", gpu("L4"), per_node, nodes)
    refusal = plan_serving(_MODELS[0], Workload(), []).refusal
    assert refusal is not None and refusal.reason == "NoAccelerator"
