"""Properties that hold for every model, accelerator and workload."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagefleet_memory import (
    KV_CACHE_DTYPES,
    Accelerator,
    EngineLimits,
    MemoryModelError,
    ModelShape,
    NodeGroup,
    Pins,
    PlanResult,
    ShapeError,
    Workload,
    accelerator_from_labels,
    build_stage_ledgers,
    plan_serving,
)
from pagefleet_memory.families import ALIASES, FAMILIES
from tests.memory.family_configs import CONFIGS, WRAPPERS
from tests.memory.memory_builders import LLAMA_3_8B, LLAMA_3_70B, MIB, SMOLLM2_135M, shape

# Machines differ in speed, and time is not what is tested.
_RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
_MODELS = [shape(config) for config in (LLAMA_3_8B, LLAMA_3_70B, SMOLLM2_135M)]
_FAMILY_SHAPES = [
    ModelShape.from_config({"model_type": model_type, **values})
    for model_type, values in (*CONFIGS, *WRAPPERS)
]
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
    "vision_config",
    "vision_feature_layer",
    "thinker_config",
    "quantization_config",
    "rope_scaling",
    "rope_parameters",
    "partial_rotary_factor",
    "num_experts",
    "n_routed_experts",
    "first_k_dense_replace",
    "mlp_only_layers",
    "kv_lora_rank",
    "indexer_types",
    "global_head_dim",
    "linear_num_value_heads",
    "attention_bias",
    "architectures",
]
_QUANTIZATION_KEYS = [
    "quant_method",
    "bits",
    "group_size",
    "sym",
    "ignore",
    "modules_to_not_convert",
    "config_groups",
    "quant_algo",
    "weight_block_size",
    "load_in_4bit",
    "extra_config",
]
_QUANTIZATION_METHODS = [
    "awq",
    "gptq",
    "auto-round",
    "fp8",
    "bitsandbytes",
    "mxfp4",
    "compressed-tensors",
    "modelopt",
]
_FAMILY = st.sampled_from(sorted([*FAMILIES, *ALIASES]))


def _gpu(memory_mib: int) -> Accelerator:
    return accelerator_from_labels("NVIDIA-X900", memory_mib)


def _plan(model: ModelShape, tokens: int, memory_mib: int, pins: Pins | None = None) -> PlanResult:
    group = NodeGroup("g", _gpu(memory_mib), 8, 2, nvlink=True)
    return plan_serving(model, Workload(max_model_len=tokens), [group], pins)


@_RELAXED
@given(
    model=st.sampled_from([*_MODELS, *_FAMILY_SHAPES]),
    memory_mib=st.integers(1, 300_000),
    utilization=st.floats(0.01, 1.0),
    seqs=st.integers(1, 2048),
    batched=st.integers(1, 32768),
    ranks=st.sampled_from([1, 2, 4, 8]),
    stages=st.integers(1, 3),
    kv_dtype=st.sampled_from(KV_CACHE_DTYPES),
)
def test_terms_sum_to_the_budget(
    model: ModelShape,
    memory_mib: int,
    utilization: float,
    seqs: int,
    batched: int,
    ranks: int,
    stages: int,
    kv_dtype: str,
) -> None:
    limits = EngineLimits(
        dtype="bfloat16",
        kv_cache_dtype=kv_dtype,
        max_model_len=4096,
        max_num_seqs=seqs,
        max_num_batched_tokens=batched,
        tensor_parallel_size=ranks,
        pipeline_parallel_size=stages,
        gpu_memory_utilization=utilization,
    )
    for ledger in build_stage_ledgers(model, _gpu(memory_mib), limits):
        assert sum(term.bytes for term in ledger.terms) == ledger.budget_bytes
        assert ledger.budget_bytes == int(_gpu(memory_mib).memory_bytes * utilization)


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
@given(
    method=st.sampled_from(_QUANTIZATION_METHODS),
    section=st.dictionaries(st.sampled_from(_QUANTIZATION_KEYS), _JSON, max_size=4),
)
def test_a_bad_quantization_section_raises_only_shape_errors(
    method: str, section: dict[str, Any]
) -> None:
    config = {**LLAMA_3_8B, "quantization_config": {"quant_method": method, **section}}
    try:
        assert ModelShape.from_config(config).weight_bytes("bfloat16") > 0
    except ShapeError as error:
        assert error.field


@_RELAXED
@given(config=_JSON)
def test_any_json_value_raises_only_shape_errors(config: Any) -> None:
    try:
        ModelShape.from_config(config)
    except ShapeError as error:
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
