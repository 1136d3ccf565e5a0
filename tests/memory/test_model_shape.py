"""Reading config.json: what is taken, what is refused and by which field, and the summary."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pagefleet_memory import CheckpointSummary, MemoryModelError, ModelShape, ShapeError
from tests.memory.memory_builders import DEEPSEEK_V3, LLAMA_3_8B, SMOLLM2_135M, shape

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
    assert read >= 60
