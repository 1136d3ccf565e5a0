"""What a vLLM rank holds of the weights: rounding, copies, padding, expert parallelism."""

from typing import Any

import pytest

from pagefleet_memory import LimitError, ModelShape
from pagefleet_memory.vllm import Release, Run, predict
from pagefleet_memory.vllm.overhead import non_torch
from pagefleet_memory.vllm.weights import allocated, rank_weights, rope_bytes
from tests.memory.observed_runs import CONFIGS, GIB

MIB = 1 << 20
_OLD, _NEW = Release(0, 19), Release(0, 24)


def _weights(model: str, **settings: Any) -> float:
    run = Run(**{"release": _OLD, "max_model_len": 8192, **settings})
    shape = ModelShape.from_config(CONFIGS[model])
    return (rank_weights(shape, run, 0) + rope_bytes(shape, run)) / GIB


@pytest.mark.parametrize(
    ("size", "release", "held"),
    [
        (9 * MIB + 1, _OLD, 9 * MIB + 512),  # shares a segment with others
        (11 * MIB, _OLD, 12 * MIB),  # 1 MiB is left over and lost
        (11 * MIB - 512, _OLD, 11 * MIB - 512),  # more than that is used by others
        (12 * MIB, _OLD, 12 * MIB),
        (11 * MIB, _NEW, 11 * MIB),
    ],
)
def test_a_large_tensor_loses_what_its_segment_leaves_over(
    size: int, release: Release, held: int
) -> None:
    assert allocated(size, release) == held


def test_a_rotary_table_scaled_linearly_has_more_rows() -> None:
    """Gemma-3-4B holds half a GiB of them, and a local table beside it."""
    config = CONFIGS["gemma_3_27b"]
    run = Run(release=_OLD, max_model_len=8192)
    shape = ModelShape.from_config(config)
    assert [table.positions for table in shape.rope_tables] == [8 * 131_072, 131_072]
    assert rope_bytes(shape, run) == 9 * 131_072 * 128 * 2


def test_every_rank_holds_the_whole_rotary_table_of_ten_million_positions() -> None:
    shape = ModelShape.from_config(CONFIGS["llama_4_scout"])
    run = Run(release=_OLD, max_model_len=8192, tensor_parallel_size=4)
    assert rope_bytes(shape, run) == int(2.5 * GIB)


def test_data_parallel_ranks_copy_all_but_their_experts() -> None:
    """Qwen3-30B-A3B with DP 2 and expert parallelism: 29.88 GiB observed."""
    held = _weights("qwen3_30b_a3b", data_parallel_size=2, expert_parallel=True)
    assert held == pytest.approx(29.88, abs=0.02)


def test_release_0_7_kept_products_of_latent_projections() -> None:
    plain = _weights("deepseek_v2_lite", tensor_parallel_size=8)
    absorbed = _weights("deepseek_v2_lite", tensor_parallel_size=8, release=Release(0, 7))
    up_projection = 27 * 512 * 2 * (128 + 128) * 2 / GIB
    products = 27 * 2 * 512 * (2048 + 2048) * 2 / GIB
    rotary = 27 * 2 * 2048 * 64 * 2 / GIB
    assert absorbed - plain == pytest.approx(products + rotary - up_projection, abs=0.001)


@pytest.mark.parametrize(
    ("settings", "observed"),
    [
        ({}, 13.64),
        ({"release": Release(0, 14)}, 13.47),
        ({"tensor_parallel_size": 2}, 7.01),
    ],
)
def test_mxfp4_experts_are_padded(settings: dict[str, Any], observed: float) -> None:
    """gpt-oss-20b has 12.84 GiB by its shapes."""
    assert _weights("gpt_oss_20b", **settings) == pytest.approx(observed, rel=0.02)


@pytest.mark.parametrize(
    ("settings", "gib"),
    [
        ({}, 0.25),
        ({"release": Release(0, 17)}, 0.13),
        ({"tensor_parallel_size": 2}, 2.07),
        ({"tensor_parallel_size": 4}, 2.19),
        ({"tensor_parallel_size": 2, "release": Release(0, 11)}, 0.50),
        ({"tensor_parallel_size": 2, "joined_by_nvlink": False}, 0.50),
        ({"pipeline_parallel_size": 2}, 0.07),
        ({"compute_capability": 10.0}, 0.07),
        ({"compute_capability": 10.0, "tensor_parallel_size": 4}, 0.95),
        ({"memory_bytes": 22 * GIB, "compute_capability": 8.6}, 0.06),
        ({"memory_bytes": 22 * GIB, "compute_capability": 8.6, "tensor_parallel_size": 2}, 0.33),
    ],
)
def test_growth_outside_pytorch_is_the_one_measured_for_such_a_run(
    settings: dict[str, Any], gib: float
) -> None:
    common = {"release": _OLD, "max_model_len": 8192, "memory_bytes": 80 * GIB}
    assert non_torch(Run(**{**common, **settings})) == int(gib * GIB)


def test_serving_text_alone_leaves_out_the_tower() -> None:
    shape = ModelShape.from_config(CONFIGS["mistral_small_3_1"])
    run = Run(release=_OLD, max_model_len=8192, text_only=True)
    alone = predict(shape, run).weights_bytes
    both = predict(shape, Run(release=_OLD, max_model_len=8192)).weights_bytes
    assert both - alone == 2 * shape.tower_parameters


def test_a_run_on_an_unknown_gpu_has_no_pool() -> None:
    shape = ModelShape.from_config(CONFIGS["llama_3_1_8b"])
    predicted = predict(shape, Run(release=_OLD, max_model_len=8192))
    assert predicted.weights_bytes > 14 * GIB
    assert predicted.kv_cache_bytes is predicted.kv_tokens is predicted.fits is None


@pytest.mark.parametrize("text", ["", "latest", "x.y"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(LimitError, match="version"):
        Release.parse(text)
