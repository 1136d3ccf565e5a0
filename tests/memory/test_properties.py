"""Properties that hold for every model, accelerator and workload."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagefleet_memory import (
    Accelerator,
    EngineLimits,
    MemoryModelError,
    ModelShape,
    NodeGroup,
    Pins,
    PlanResult,
    Workload,
    accelerator_from_labels,
    build_stage_ledgers,
    plan_serving,
)
from tests.memory.memory_builders import LLAMA_3_8B, LLAMA_3_70B, MIB, SMOLLM2_135M, shape

# Machines differ in speed, and time is not what is tested.
_RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
_MODELS = [shape(config) for config in (LLAMA_3_8B, LLAMA_3_70B, SMOLLM2_135M)]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
_KEYS = [
    *LLAMA_3_8B,
    "head_dim",
    "tie_word_embeddings",
    "layer_types",
    "sliding_window",
    "text_config",
    "quantization_config",
    "num_experts",
    "kv_lora_rank",
    "attention_bias",
    "architectures",
]
_FAMILY = st.sampled_from(
    ["llama", "mistral", "qwen2", "qwen3_moe", "gemma2", "gemma3_text", "deepseek_v3", "opt"]
)


def _gpu(memory_mib: int) -> Accelerator:
    return accelerator_from_labels("NVIDIA-X900", memory_mib)


def _plan(model: ModelShape, tokens: int, memory_mib: int, pins: Pins | None = None) -> PlanResult:
    group = NodeGroup("g", _gpu(memory_mib), 8, 2, nvlink=True)
    return plan_serving(model, Workload(max_model_len=tokens), [group], pins)


@_RELAXED
@given(
    model=st.sampled_from(_MODELS),
    memory_mib=st.integers(1, 300_000),
    utilization=st.floats(0.01, 1.0),
    seqs=st.integers(1, 2048),
    batched=st.integers(1, 32768),
    stages=st.integers(1, 6),
    kv_dtype=st.sampled_from(["auto", "float16", "fp8_e4m3", "int8"]),
)
def test_terms_sum_to_the_budget(
    model: ModelShape,
    memory_mib: int,
    utilization: float,
    seqs: int,
    batched: int,
    stages: int,
    kv_dtype: str,
) -> None:
    limits = EngineLimits(
        dtype="bfloat16",
        kv_cache_dtype=kv_dtype,
        max_model_len=4096,
        max_num_seqs=seqs,
        max_num_batched_tokens=batched,
        pipeline_parallel_size=stages,
        gpu_memory_utilization=utilization,
    )
    for ledger in build_stage_ledgers(model, _gpu(memory_mib), limits):
        assert sum(term.bytes for term in ledger.terms) == ledger.budget_bytes
        assert ledger.budget_bytes == int(_gpu(memory_mib).memory_bytes * utilization)


@_RELAXED
@given(
    model=st.sampled_from(_MODELS),
    tokens=st.integers(1, 8192),
    memory_mib=st.integers(2_000, 200_000),
    more_mib=st.integers(1, 50_000),
)
def test_more_memory_is_never_worse(
    model: ModelShape, tokens: int, memory_mib: int, more_mib: int
) -> None:
    pins = Pins(max_num_seqs=16)
    small = _plan(model, tokens, memory_mib, pins).chosen
    large = _plan(model, tokens, memory_mib + more_mib, pins).chosen
    if small is None:
        return
    assert large is not None
    assert large.gpus_per_replica <= small.gpus_per_replica
    if large.gpus_per_replica == small.gpus_per_replica:
        assert large.kv_tokens >= small.kv_tokens


@_RELAXED
@given(
    model=st.sampled_from(_MODELS),
    tokens=st.integers(1, 8000),
    more=st.integers(1, 8000),
    memory_mib=st.integers(2_000, 200_000),
)
def test_a_longer_context_never_needs_fewer_gpus(
    model: ModelShape, tokens: int, more: int, memory_mib: int
) -> None:
    longer = min(tokens + more, model.max_position_embeddings)
    long_plan = _plan(model, longer, memory_mib).chosen
    if long_plan is None:
        return
    short_plan = _plan(model, tokens, memory_mib).chosen
    assert short_plan is not None
    assert short_plan.gpus_per_replica <= long_plan.gpus_per_replica


@_RELAXED
@given(
    family=_FAMILY,
    changes=st.dictionaries(st.sampled_from(_KEYS), _JSON, max_size=4),
    sizes=st.dictionaries(
        st.sampled_from([key for key in LLAMA_3_8B if key not in ("model_type", "torch_dtype")]),
        st.integers(-1, 1 << 45),
        max_size=3,
    ),
)
def test_a_bad_config_raises_only_memory_model_errors(
    family: str, changes: dict[str, Any], sizes: dict[str, int]
) -> None:
    config = {**LLAMA_3_8B, "model_type": family, **sizes, **changes}
    try:
        model = ModelShape.from_config(config)
        ModelShape.from_summary(model.to_summary())
        _plan(model, 16, 80_000)
    except MemoryModelError as error:
        assert error.field


@_RELAXED
@given(summary=st.dictionaries(st.sampled_from(list(shape(LLAMA_3_8B).to_summary())), _JSON))
def test_a_bad_summary_raises_only_memory_model_errors(summary: dict[str, Any]) -> None:
    try:
        model = ModelShape.from_summary({**shape(LLAMA_3_8B).to_summary(), **summary})
        _plan(model, 16, 80_000)
    except MemoryModelError as error:
        assert error.field


@_RELAXED
@given(value=_JSON, name=st.sampled_from(list(Pins.__dataclass_fields__)))
def test_a_bad_pin_raises_only_memory_model_errors(value: object, name: str) -> None:
    try:
        pins = replace(Pins(), **{name: value})  # type: ignore[arg-type]
        plan_serving(_MODELS[0], Workload(), [NodeGroup("g", _gpu(80_000), 8, 2, True)], pins)
    except MemoryModelError as error:
        assert error.field


@pytest.mark.parametrize("memory_mib", [1, 10, 500])
def test_tiny_devices_are_refused_and_do_not_break(memory_mib: int) -> None:
    assert _plan(_MODELS[0], 1024, memory_mib).refusal is not None
    assert _gpu(memory_mib).memory_bytes < 500 * MIB
