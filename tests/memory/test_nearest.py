"""What a refusal proposes is true: each change is planned again, and gives a plan."""

from typing import Any

import pytest

from pagefleet_memory import (
    NodeGroup,
    Pins,
    PlanResult,
    TokenDistribution,
    Workload,
    accelerator_from_labels,
    plan_serving,
)
from tests.memory.memory_builders import (
    GIB,
    LLAMA_3_8B,
    LLAMA_3_70B,
    SMOLLM2_135M,
    cpus,
    gpus,
    shape,
)

LLAMA_405B = {
    **LLAMA_3_70B,
    "hidden_size": 16384,
    "num_hidden_layers": 126,
    "num_attention_heads": 128,
    "intermediate_size": 53248,
}
_LONG = Workload(max_model_len=131072)
_CASES: dict[str, tuple[dict[str, Any], Workload, list[NodeGroup], Pins]] = {
    "long on one L4": (LLAMA_3_8B, Workload(max_model_len=65536), [gpus("L4", 1)], Pins()),
    "8B on one T4": (LLAMA_3_8B, Workload(max_model_len=8192), [gpus("T4", 1)], Pins()),
    "70B on one L4": (LLAMA_3_70B, Workload(max_model_len=8192), [gpus("L4", 1)], Pins()),
    "70B on a pair": (LLAMA_3_70B, _LONG, [gpus("A100-80", 2)], Pins()),
    "405B on 8 H100": (LLAMA_405B, Workload(max_model_len=8192), [gpus("H100", 8)], Pins()),
    "too many slots": (
        LLAMA_3_8B,
        Workload(max_model_len=8192),
        [gpus("L4", 1)],
        Pins(max_num_seqs=30000, max_num_batched_tokens=32768, enforce_eager=True),
    ),
    "too large steps": (
        LLAMA_3_8B,
        Workload(max_model_len=8192),
        [gpus("L4", 1)],
        Pins(max_num_batched_tokens=100_000),
    ),
    "too small a share": (
        LLAMA_3_8B,
        Workload(max_model_len=8192),
        [gpus("L4", 1)],
        Pins(gpu_memory_utilization=0.6),
    ),
    "too many tokens": (
        LLAMA_3_8B,
        Workload(max_model_len=4096),
        [gpus("L4", 1)],
        Pins(min_kv_tokens=60_000),
    ),
    "float32": (
        LLAMA_3_8B,
        Workload(max_model_len=4096),
        [gpus("L4", 1)],
        Pins(dtype="float32"),
    ),
    "bfloat16 on a T4": (
        SMOLLM2_135M,
        Workload(max_model_len=4096),
        [gpus("T4", 1)],
        Pins(dtype="bfloat16"),
    ),
    "fp8 on an A100": (
        LLAMA_3_8B,
        Workload(max_model_len=4096),
        [gpus("A100-40", 1)],
        Pins(kv_cache_dtype="fp8_e4m3"),
    ),
    "one GPU at most": (
        LLAMA_3_70B,
        Workload(max_model_len=8192),
        [gpus("H100", 8)],
        Pins(max_gpus=1),
    ),
    "three ranks": (
        LLAMA_3_8B,
        Workload(max_model_len=8192),
        [gpus("H100", 8)],
        Pins(tensor_parallel_size=3),
    ),
    "sixteen ranks": (
        LLAMA_3_8B,
        Workload(max_model_len=8192),
        [gpus("H100", 8)],
        Pins(tensor_parallel_size=16),
    ),
    "another product": (
        LLAMA_3_8B,
        Workload(max_model_len=8192),
        [gpus("H100", 8)],
        Pins(products=("B200",)),
    ),
    "too many positions": (
        LLAMA_3_8B,
        Workload(max_model_len=200_000),
        [gpus("H100", 8)],
        Pins(),
    ),
    "slots beyond a step": (
        LLAMA_3_8B,
        Workload(max_model_len=8192),
        [gpus("H100", 8)],
        Pins(max_num_seqs=512, max_num_batched_tokens=256),
    ),
    "small container": (
        SMOLLM2_135M,
        Workload(max_model_len=8192),
        [cpus(8 * GIB)],
        Pins(device_memory_bytes=GIB),
    ),
    "larger than the node": (
        SMOLLM2_135M,
        Workload(max_model_len=8192),
        [cpus(8 * GIB)],
        Pins(device_memory_bytes=9 * GIB),
    ),
    "a slice too small": (
        LLAMA_3_8B,
        Workload(max_model_len=8192),
        [NodeGroup("mig", accelerator_from_labels("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", 4864), 7, 1)],
        Pins(),
    ),
    "long prompts": (
        LLAMA_3_8B,
        Workload(input_tokens=TokenDistribution(60_000, 90_000)),
        [gpus("L4", 1)],
        Pins(),
    ),
}


def _refused(name: str) -> PlanResult:
    config, workload, groups, pins = _CASES[name]
    return plan_serving(shape(config), workload, groups, pins)


@pytest.mark.parametrize("name", _CASES)
def test_every_change_that_is_proposed_gives_a_plan(name: str) -> None:
    refusal = _refused(name).refusal
    assert refusal is not None and refusal.changes
    for change in refusal.changes:
        again = plan_serving(change.shape, change.workload, change.groups, change.pins)
        assert again.chosen is not None, change.message


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("long on one L4", "kvCache.dtype int8"),
        ("8B on one T4", "a 4-bit checkpoint (GPTQ, groups of 128) fits 1x Tesla-T4"),
        ("405B on 8 H100", "an 8-bit checkpoint (fp8, a scale per row) fits 8x"),
        ("70B on a pair", "4x NVIDIA-A100-SXM4-80GB (TP=4, PP=1) fits"),
        ("405B on 8 H100", "16x NVIDIA-H100-80GB-HBM3 (TP=8, PP=2)"),
        ("too many slots", "maxNumSeqs "),
        ("too large steps", "maxNumBatchedTokens left out"),
        ("too small a share", "gpuMemoryUtilization left out"),
        ("too many tokens", "minKVTokens "),
        ("float32", "dtype left out"),
        ("bfloat16 on a T4", "dtype left out"),
        ("fp8 on an A100", "kvCache.dtype left out"),
        ("one GPU at most", "parallelism and maxGPUs left out: 2x"),
        ("three ranks", "parallelism and maxGPUs left out: 1x"),
        ("another product", "products left out: 1x NVIDIA-H100-80GB-HBM3"),
        ("too many positions", "maxModelLen 131072 fits"),
        ("slots beyond a step", "maxNumSeqs 256 fits"),
        ("small container", "memory "),
        ("larger than the node", "memory "),
        ("a slice too small", "1x NVIDIA-A10 (TP=1, PP=1) fits"),
    ],
)
def test_the_lever_that_helps_is_named(name: str, said: str) -> None:
    refusal = _refused(name).refusal
    assert refusal is not None
    assert any(said in change for change in refusal.nearest), refusal.nearest


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("long on one L4", "max_model_len", 16),
        ("too many slots", "max_num_seqs", 1),
        ("too many tokens", "min_kv_tokens", 16),
    ],
)
def test_the_largest_value_that_fits_is_proposed(name: str, field: str, value: int) -> None:
    """A block or a slot more, and the plan is refused again."""
    refusal = _refused(name).refusal
    assert refusal is not None
    change = refusal.changes[0]
    largest = getattr(change.pins, field)
    more = {field: largest + value}
    pins = Pins(**{**{key: getattr(change.pins, key) for key in _PINNED}, **more})
    workload = Workload(max_model_len=pins.max_model_len or change.workload.max_model_len)
    assert plan_serving(change.shape, workload, change.groups, pins).chosen is None


_PINNED = (
    "max_model_len",
    "max_num_seqs",
    "min_kv_tokens",
    "max_num_batched_tokens",
    "enforce_eager",
)


def test_without_an_inventory_there_is_nothing_to_change() -> None:
    refusal = plan_serving(shape(LLAMA_3_8B), _LONG, []).refusal
    assert refusal is not None and refusal.nearest == ()
