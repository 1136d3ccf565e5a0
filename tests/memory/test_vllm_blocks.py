"""How vLLM lays blocks over layers: worked examples whose answers its logs print."""

from dataclasses import replace
from typing import Any

import pytest

from pagefleet_memory import LimitError, ModelShape
from pagefleet_memory.vllm import Release, Run, predict
from pagefleet_memory.vllm.kv_groups import stage_layout
from tests.memory.observed_runs import CONFIGS, GIB

_NEW = Release(0, 24)


def _shape(model: str, **text: Any) -> ModelShape:
    config = CONFIGS[model]
    if "text_config" in config:
        return ModelShape.from_config({**config, "text_config": {**config["text_config"], **text}})
    return ModelShape.from_config({**config, **text})


def _run(**changes: Any) -> Run:
    values: dict[str, Any] = {
        "release": Release(0, 19),
        "max_model_len": 8192,
        "memory_bytes": 80 * GIB,
        "max_num_batched_tokens": 8192,
    }
    return Run(**{**values, **changes})


@pytest.mark.parametrize(
    ("model", "text", "groups"),
    [
        ("gemma_3_27b", {}, [6, 1]),  # 52 sliding and 10 full layers, by tens
        ("gemma_2_27b", {}, [1, 1]),
        ("gpt_oss_20b", {}, [1, 1]),
        ("llama_4_scout", {}, [3, 1]),  # 36 chunked and 12 full layers
        ("llama_3_1_8b", {}, [1]),
    ],
)
def test_layers_of_one_window_form_groups_of_the_rarest_type(
    model: str, text: dict[str, Any], groups: list[int]
) -> None:
    layout = stage_layout(_shape(model, **text), _run(), 0)
    assert [each.groups for each in layout.sets] == groups


def test_a_request_of_gemma_3_needs_blocks_as_its_log_says() -> None:
    """15,997 blocks serve 4.46 requests of 8192 tokens, and are logged as 36,560 tokens."""
    layout = stage_layout(_shape("gemma_3_27b"), _run(), 0)
    assert 15_997 / layout.blocks_for(8192, 8192) == pytest.approx(4.46, abs=0.01)
    assert 15_997 // layout.groups * layout.block_tokens == 36_560


def test_a_window_saves_nothing_below_a_whole_chunk() -> None:
    layout = stage_layout(_shape("gemma_3_27b"), _run(), 0)
    full = layout.groups * 8192 // 16
    assert layout.blocks_for(8192, 8192) >= full
    assert layout.blocks_for(8192, 1024) < full / 2


def test_without_the_hybrid_allocator_windows_keep_every_token() -> None:
    layout = stage_layout(_shape("gpt_oss_20b"), _run(release=Release(0, 10)), 0)
    assert layout.is_uniform
    assert layout.block_bytes == 24 * 8 * 2 * 64 * 2 * 16


def test_global_layers_of_gemma_4_use_blocks_of_double_length() -> None:
    layout = stage_layout(_shape("gemma_4_31b"), _run(release=_NEW), 0)
    by_window = {each.window: each for each in layout.sets}
    assert (by_window[1024].groups, by_window[1024].block_tokens) == (5, 16)
    assert (by_window[None].groups, by_window[None].block_tokens) == (1, 32)


def test_a_block_of_a_hybrid_is_as_large_as_a_state() -> None:
    """784 tokens in bf16 and 1568 in fp8, as Qwen3.5-27B and Qwen3.8-27B log."""
    for kv_dtype, tokens in (("auto", 784), ("fp8_e4m3", 1568)):
        run = _run(release=_NEW, kv_cache_dtype=kv_dtype)
        layout = stage_layout(_shape("qwen3_5_27b"), run, 0)
        assert [each.block_tokens for each in layout.sets] == [tokens, tokens]
        assert [each.groups for each in layout.sets] == [1, 3]


def test_a_state_costs_the_same_at_any_length() -> None:
    layout = stage_layout(_shape("qwen3_5_27b"), _run(release=_NEW), 0)
    assert layout.blocks_for(784, 8192) == 1 + 3 * 2
    assert layout.blocks_for(10 * 784, 8192) == 10 + 3 * 2


def test_a_stage_of_states_alone_is_refused() -> None:
    with pytest.raises(LimitError, match="stage 0 has no layer that caches"):
        stage_layout(_shape("qwen3_5_27b"), _run(pipeline_parallel_size=64), 0)


def test_a_latent_row_is_on_every_rank_and_padded_by_the_first_engine() -> None:
    shape = _shape("deepseek_v2_lite")
    assert predict(shape, _run(tensor_parallel_size=8)).kv_bytes_per_token == 27 * 576 * 2
    assert predict(shape, _run(release=Release(0, 7))).kv_bytes_per_token == 27 * 640 * 2


def test_context_parallel_ranks_share_the_tokens() -> None:
    shape, run = _shape("deepseek_v2_lite"), _run(tensor_parallel_size=8)
    alone, together = (
        predict(shape, run),
        predict(shape, replace(run, decode_context_parallel_size=8)),
    )
    assert alone.kv_tokens and together.kv_tokens == 8 * alone.kv_tokens
    assert together.max_model_len == 8 * (alone.max_model_len or 0)


@pytest.mark.parametrize(
    ("kv_dtype", "share"),
    [
        ("fp8", 1 / 2),  # one scale for a whole layer
        ("fp8_e5m2", 1 / 2),
        ("int8_per_token_head", (128 + 4) / 256),
        ("fp8_per_token_head", (128 + 4) / 256),
        ("nvfp4", (64 + 8) / 256),
    ],
)
def test_bytes_of_a_quantized_cache_beside_bf16(kv_dtype: str, share: float) -> None:
    shape = _shape("llama_3_1_8b")
    plain = predict(shape, _run()).kv_bytes_per_token
    assert predict(shape, _run(kv_cache_dtype=kv_dtype)).kv_bytes_per_token == plain * share


def test_an_unknown_cache_format_is_refused_by_name() -> None:
    with pytest.raises(LimitError, match="kv_cache_dtype: unknown KV cache dtype 'int3'"):
        predict(_shape("llama_3_1_8b"), _run(kv_cache_dtype="int3"))


def test_ranks_beyond_the_kv_heads_add_no_tokens() -> None:
    shape = _shape("qwen3_30b_a3b")  # 4 KV heads
    assert predict(shape, _run(tensor_parallel_size=4)).kv_bytes_per_token == (
        predict(shape, _run(tensor_parallel_size=8)).kv_bytes_per_token
    )
