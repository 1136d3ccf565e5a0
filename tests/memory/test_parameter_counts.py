"""Parameter counts equal those of the real modules, built on the meta device.

Covers every supported family in sizes where heads, widths and biases all differ, wrappers with
their towers, and the defaults that a published file may leave out. Full-size models differ in
numbers only; chatglm, kimi_k2 and kimi_vl have no modules here to compare with.
"""

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from pagefleet_memory import ModelShape  # noqa: E402
from tests.memory.family_configs import CONFIGS, WRAPPERS  # noqa: E402


@pytest.mark.parametrize(
    ("model_type", "values"), CONFIGS, ids=[f"{i}-{t}" for i, (t, _) in enumerate(CONFIGS)]
)
def test_count_equals_the_modules_on_the_meta_device(
    model_type: str, values: dict[str, Any]
) -> None:
    assert ModelShape.from_config({"model_type": model_type, **values}).num_parameters == (
        _meta_parameters(model_type, values)
    )


@pytest.mark.parametrize(
    "model_type",
    [
        "gemma3_text",
        "gemma2",
        "smollm3",
        "qwen3",
        "qwen3_moe",
        "mistral",
        "starcoder2",
        "glm4",
        "cohere2",
        "phi",
        "olmo2",
        "gpt_oss",
        "qwen3_5_text",
        "minimax_m2",
    ],
)
def test_keys_left_out_of_a_file_take_the_config_class_defaults(model_type: str) -> None:
    """Published files leave out what equals the class default."""
    full = transformers.AutoConfig.for_model(model_type).to_dict()
    partial = {"num_hidden_layers": 2, "hidden_size": 192, "intermediate_size": 256}
    for key in ("num_attention_heads", "vocab_size", "num_experts", "num_local_experts"):
        if model_type != "gemma3_text" and key in full:
            partial[key] = full[key]
    if "moe_intermediate_size" in full:
        partial["moe_intermediate_size"] = 64
    assert ModelShape.from_config({"model_type": model_type, **partial}).num_parameters == (
        _meta_parameters(model_type, partial)
    )


@pytest.mark.parametrize(("model_type", "values"), WRAPPERS, ids=[name for name, _ in WRAPPERS])
def test_count_of_a_wrapper_includes_its_towers(model_type: str, values: dict[str, Any]) -> None:
    shape = ModelShape.from_config({"model_type": model_type, **values})
    assert shape.num_parameters + shape.tower_parameters == _meta_parameters(
        model_type, values, transformers.AutoModelForImageTextToText
    )


def _meta_parameters(model_type: str, values: dict[str, Any], builder: Any = None) -> int:
    config = transformers.AutoConfig.for_model(model_type, **values)
    with torch.device("meta"):
        model = (builder or transformers.AutoModelForCausalLM).from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())
