"""Reading config.json: what is taken, what is refused and by which field, and the summary."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pagefleet_memory import (
    CheckpointSummary,
    MemoryModelError,
    ModelShape,
    ShapeError,
    Workload,
    plan_serving,
)
from tests.memory.memory_builders import DEEPSEEK_V3, LLAMA_3_8B, SMOLLM2_135M, gpus, shape

_CONFIGS = (
    Path(os.environ.get("PAGEFLEET_SHARED_DATA") or Path(__file__).parents[3] / "shared/data")
    / "model_configs"
)


def test_sizes_of_a_llama() -> None:
    model = shape(LLAMA_3_8B, architectures=["LlamaForCausalLM"])
    assert model.architecture == "LlamaForCausalLM"
    assert (model.head_dim, model.num_key_value_heads, model.num_layers) == (128, 8, 32)
    assert model.num_parameters == 8_030_261_248
    assert model.dtype == "bfloat16"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"num_attention_heads": 24}, "num_attention_heads"),
        ({"num_hidden_layers": -1}, "num_hidden_layers"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"hidden_size": "4096"}, "hidden_size"),
        ({"vocab_size": None}, "vocab_size"),
        ({"hidden_size": 1 << 60}, "hidden_size"),
        ({"num_key_value_heads": 5}, "num_key_value_heads"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"torch_dtype": "float8"}, "torch_dtype"),
        ({"model_type": "mamba2"}, "model_type"),
        ({"model_type": None}, "model_type"),
        ({"layer_types": ["linear_attention"] * 32}, "model_type"),
        ({"layer_types": ["conv"] * 32}, "model_type"),
        ({"layer_types": ["full_attention"] * 3}, "layer_types"),
        ({"head_dim": True}, "head_dim"),
        ({"partial_rotary_factor": -0.5}, "partial_rotary_factor"),
        ({"rope_scaling": {"type": "yarn", "factor": "8"}}, "factor"),
        ({"rope_scaling": "yarn"}, "rope_scaling"),
        ({"model_type": "falcon_mamba"}, "model_type"),
        ({"model_type": "llama4_text", "num_local_experts": -1}, "num_local_experts"),
        ({"quantization_config": {"quant_method": "magic"}}, "quantization_config.quant_method"),
        ({"quantization_config": 4}, "quantization_config"),
    ],
)
def test_a_bad_config_is_refused_by_the_field_at_fault(
    changes: dict[str, object], field: str
) -> None:
    with pytest.raises(ShapeError) as caught:
        shape(LLAMA_3_8B, **changes)
    assert caught.value.field == field
    assert field in str(caught.value)


def test_an_unsupported_architecture_is_told_what_is_supported() -> None:
    with pytest.raises(ShapeError, match="supported: .*llama"):
        ModelShape.from_config({"model_type": "bert"})


def test_an_unknown_architecture_is_counted_from_its_files() -> None:
    config = {**LLAMA_3_8B, "model_type": "novel", "architectures": ["NovelForCausalLM"]}
    with pytest.raises(ShapeError, match="those whose weight files are at hand"):
        ModelShape.from_config(config)
    stored = CheckpointSummary(
        total_bytes=17_000_000_000,
        bytes_by_dtype={"BF16": 17_000_000_000},
        num_parameters=8_500_000_000,
    )
    model = ModelShape.from_config(config, checkpoint=stored)
    assert model.weight_bytes("bfloat16") == 17_000_000_000
    assert model.kv_bytes_per_token("auto") == 131_072
    assert "novel is not known" in model.remarks[0]


@pytest.mark.parametrize("name", ["BertModel", "NovelForSequenceClassification", ""])
def test_files_do_not_make_an_encoder_a_language_model(name: str) -> None:
    stored = CheckpointSummary(total_bytes=2, bytes_by_dtype={"BF16": 2}, num_parameters=1)
    config = {**LLAMA_3_8B, "model_type": "novel", "architectures": [name]}
    with pytest.raises(ShapeError, match="not a supported architecture"):
        ModelShape.from_config(config, checkpoint=stored)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (DEEPSEEK_V3, "latent"),
        ({**LLAMA_3_8B, "model_type": "qwen3_5_text"}, "recurrent state"),
    ],
)
def test_what_the_engine_cannot_run_has_a_shape_and_no_plan(
    config: dict[str, Any], reason: str
) -> None:
    model = ModelShape.from_config(config)
    assert reason in (model.unsupported_by_engine or "")
    with pytest.raises(ShapeError, match=reason) as caught:
        plan_serving(model, Workload(max_model_len=4096), [gpus("H100", 8)])
    assert caught.value.field == "model_type"


def test_what_the_engine_runs_is_not_refused() -> None:
    model = shape(LLAMA_3_8B)
    assert model.unsupported_by_engine is None
    model.require_engine_support()


def test_a_config_under_names_of_chatglm_is_read() -> None:
    names = {"num_layers": 40, "ffn_hidden_size": 13696, "multi_query_group_num": 2}
    names |= {"kv_channels": 128, "seq_length": 131072, "padded_vocab_size": 151552}
    config = {"model_type": "chatglm", "hidden_size": 4096, "num_attention_heads": 32, **names}
    model = ModelShape.from_config({**config, "add_qkv_bias": True, "torch_dtype": "bfloat16"})
    assert model.num_parameters == 9_399_951_360  # GLM-4-9B
    assert model.max_position_embeddings == 131072


def test_the_wrapper_decides_ties_only_where_the_text_model_is_silent() -> None:
    wrapper = {"model_type": "llava", "tie_word_embeddings": True}
    stated = {**LLAMA_3_8B, "tie_word_embeddings": False}
    assert ModelShape.from_config({**wrapper, "text_config": LLAMA_3_8B}).tie_word_embeddings
    assert not ModelShape.from_config({**wrapper, "text_config": stated}).tie_word_embeddings
    silent = ModelShape.from_config({"model_type": "mistral3", "text_config": LLAMA_3_8B})
    assert not silent.tie_word_embeddings


def test_a_text_model_two_wrappers_deep_is_found() -> None:
    thinker = {"model_type": "thinker", "text_config": {**LLAMA_3_8B, "model_type": "qwen3"}}
    model = ModelShape.from_config({"model_type": "qwen3_omni_moe", "thinker_config": thinker})
    assert model.model_type == "qwen3"


def test_head_dim_is_read_and_not_divided_out() -> None:
    """Qwen3-32B has 64 heads of 128 in a hidden size of 5120."""
    model = shape(LLAMA_3_8B, model_type="qwen3", hidden_size=5120, num_attention_heads=64)
    assert model.head_dim == 128


def test_the_text_part_of_a_multimodal_config_is_taken() -> None:
    text = {key: value for key, value in LLAMA_3_8B.items() if key != "num_attention_heads"}
    text |= {"model_type": "gemma3_text", "hidden_size": 2560}
    model = ModelShape.from_config({"model_type": "gemma3", "text_config": text})
    assert model.num_attention_heads == 8
    assert model.tie_word_embeddings
    assert model.remarks and "text model only" in model.remarks[0]


def test_every_sixth_layer_of_gemma_3_sees_all_tokens() -> None:
    model = shape(LLAMA_3_8B, model_type="gemma3_text", num_hidden_layers=12, sliding_window=1024)
    windows = [kind.attention.window for kind in model.layers]
    assert windows == ([1024] * 5 + [None]) * 2
    assert model.sliding_window == 1024


def test_windows_do_not_lower_bytes_per_token_in_this_engine() -> None:
    assert shape(LLAMA_3_8B, model_type="mistral", sliding_window=4096).kv_bytes_per_token(
        "auto"
    ) == shape(LLAMA_3_8B).kv_bytes_per_token("auto")


def test_dense_layers_come_before_sparse_ones_in_deepseek() -> None:
    model = shape(DEEPSEEK_V3)
    assert model.layer_pattern == (0,) * 3 + (1,) * 58
    assert model.layer_kinds[0].weights.experts == 0
    assert model.num_parameters == pytest.approx(671e9, rel=0.001)
    assert model.active_parameters == pytest.approx(37.5e9, rel=0.01)


def test_the_dtype_of_most_stored_bytes_wins_over_the_config() -> None:
    stored = CheckpointSummary(
        total_bytes=110, bytes_by_dtype={"F16": 100, "F32": 10}, num_parameters=52
    )
    assert ModelShape.from_config(SMOLLM2_135M, checkpoint=stored).dtype == "float16"


@pytest.mark.parametrize(
    "config",
    [
        LLAMA_3_8B,
        SMOLLM2_135M,
        DEEPSEEK_V3,
        {**LLAMA_3_8B, "model_type": "gemma3_text"},
        {**LLAMA_3_8B, "quantization_config": {"quant_method": "awq", "bits": 4}},
        {**LLAMA_3_8B, "model_type": "qwen2_moe", "num_experts": 60, "moe_intermediate_size": 64},
    ],
)
def test_a_summary_is_small_and_reads_back_unchanged(config: dict[str, Any]) -> None:
    stored = CheckpointSummary(
        total_bytes=10**12, bytes_by_dtype={"BF16": 10**12}, num_parameters=5 * 10**11
    )
    for checkpoint in (None, stored):
        model = ModelShape.from_config(config, checkpoint=checkpoint)
        text = json.dumps(model.to_summary())
        assert len(text) < 3000
        assert ModelShape.from_summary(json.loads(text)) == model


@pytest.mark.parametrize("damage", ["layer_kinds", "layer_pattern", "num_layers", "dtype"])
def test_a_damaged_summary_is_refused(damage: str) -> None:
    summary = shape(LLAMA_3_8B).to_summary()
    del summary[damage]
    with pytest.raises(ShapeError):
        ModelShape.from_summary(summary)


def test_published_configs_are_read_or_refused_by_name() -> None:
    if not _CONFIGS.is_dir():
        pytest.skip(f"no model configs at {_CONFIGS}; set PAGEFLEET_SHARED_DATA")
    read = 0
    for path in sorted(_CONFIGS.glob("*.json")):
        try:
            model = ModelShape.from_config(json.loads(path.read_text()))
        except MemoryModelError as error:
            assert error.field, path.name
            continue
        read += 1
        assert model.num_parameters > 10**8, path.name
        assert len(json.dumps(model.to_summary())) < 3000, path.name
    assert read >= 100
