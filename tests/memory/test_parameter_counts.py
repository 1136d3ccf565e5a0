"""Parameter counts equal those of the real modules, built on the meta device.

Covers every supported family in sizes where heads, widths and biases all differ, plus the
defaults that a published file may leave out. Full-size models differ in numbers only.
"""

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from pagefleet_memory import ModelShape  # noqa: E402

_COMMON: dict[str, Any] = {
    "num_hidden_layers": 4,
    "hidden_size": 96,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 160,
    "vocab_size": 1003,
    "max_position_embeddings": 512,
}
_MOE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
_MLA = {
    "q_lora_rank": 40,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 8,
    "v_head_dim": 20,
    "num_key_value_heads": 6,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "moe_intermediate_size": 48,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
}
_GLM_MOE = {
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
}
_INDEXER = {"index_n_heads": 4, "index_head_dim": 16, "index_topk": 8, "index_topk_freq": 2}
_LLAMA4 = {"num_local_experts": 4, "intermediate_size_mlp": 200, "head_dim": 40}
_GEMMA4 = {
    "head_dim": 40,
    "global_head_dim": 48,
    "num_global_key_value_heads": 1,
    "num_hidden_layers": 6,
    "hidden_size_per_layer_input": 0,
}
_DELTA_NET = {
    "head_dim": 40,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "linear_conv_kernel_dim": 3,
}
_GPT2 = {"n_layer": 3, "n_embd": 96, "n_head": 6, "vocab_size": 1003, "n_positions": 128}
_OPT = {
    "num_hidden_layers": 3,
    "hidden_size": 96,
    "word_embed_proj_dim": 96,
    "num_attention_heads": 6,
    "ffn_dim": 160,
    "vocab_size": 1003,
    "max_position_embeddings": 128,
}

CONFIGS: list[tuple[str, dict[str, Any]]] = [
    ("llama", _COMMON),
    ("llama", {**_COMMON, "tie_word_embeddings": True, "head_dim": 40}),
    ("llama", {**_COMMON, "attention_bias": True, "mlp_bias": True}),
    ("mistral", {**_COMMON, "head_dim": 32}),
    ("mixtral", {**_COMMON, "num_local_experts": 4, "num_experts_per_tok": 2}),
    ("qwen2", _COMMON),
    ("qwen2", {**_COMMON, "tie_word_embeddings": True, "use_sliding_window": True}),
    ("qwen2_moe", {**_COMMON, **_MOE, "shared_expert_intermediate_size": 80}),
    ("qwen2_moe", {**_COMMON, **_MOE, "decoder_sparse_step": 2, "mlp_only_layers": [3]}),
    ("qwen3", {**_COMMON, "head_dim": 40}),
    ("qwen3", {**_COMMON, "attention_bias": True}),
    ("qwen3_moe", {**_COMMON, **_MOE, "head_dim": 40}),
    ("qwen3_moe", {**_COMMON, **_MOE, "mlp_only_layers": [0], "attention_bias": True}),
    ("gemma", {**_COMMON, "head_dim": 40}),
    ("gemma2", {**_COMMON, "head_dim": 40}),
    ("gemma3_text", {**_COMMON, "head_dim": 40}),
    ("phi3", {**_COMMON, "pad_token_id": 0}),
    ("granite", _COMMON),
    ("granite", {**_COMMON, "attention_bias": True, "tie_word_embeddings": True}),
    ("smollm3", {**_COMMON, "pad_token_id": 0}),
    ("granitemoe", {**_COMMON, "num_local_experts": 4, "num_experts_per_tok": 2}),
    ("phi", _COMMON),
    ("phi", {**_COMMON, "qk_layernorm": True, "tie_word_embeddings": True}),
    ("olmo2", {**_COMMON, "pad_token_id": 0}),
    ("cohere", {**_COMMON, "use_qk_norm": True, "pad_token_id": 0}),
    ("cohere2", {**_COMMON, "pad_token_id": 0, "eos_token_id": 1}),
    ("starcoder2", _COMMON),
    ("starcoder2", {**_COMMON, "use_bias": False, "tie_word_embeddings": False}),
    ("glm", {**_COMMON, "head_dim": 40, "pad_token_id": 0}),
    ("glm4", {**_COMMON, "head_dim": 40, "pad_token_id": 0, "attention_bias": False}),
    ("glm4_moe", {**_COMMON, **_GLM_MOE}),
    ("glm4_moe", {**_COMMON, **_GLM_MOE, "use_qk_norm": True, "head_dim": 40}),
    ("glm_moe_dsa", {**_COMMON, **_MLA, **_INDEXER}),
    ("minimax_m2", {**_COMMON, "num_local_experts": 4, "head_dim": 40}),
    ("llama4_text", {**_COMMON, **_LLAMA4}),
    ("llama4_text", {**_COMMON, **_LLAMA4, "interleave_moe_layer_step": 2}),
    ("gemma4_text", {**_COMMON, **_GEMMA4}),
    ("gemma4_text", {**_COMMON, **_GEMMA4, "attention_k_eq_v": True}),
    ("qwen3_next", {**_COMMON, **_MOE, **_DELTA_NET, "shared_expert_intermediate_size": 56}),
    ("qwen3_5_text", {**_COMMON, **_DELTA_NET}),
    ("qwen3_5_moe_text", {**_COMMON, **_MOE, **_DELTA_NET}),
    ("gpt_oss", {**_COMMON, "num_local_experts": 4, "head_dim": 40}),
    ("deepseek_v2", {**_COMMON, **_MLA}),
    ("deepseek_v2", {**_COMMON, **_MLA, "q_lora_rank": None, "attention_bias": True}),
    ("deepseek_v3", {**_COMMON, **_MLA}),
    ("deepseek_v3", {**_COMMON, **_MLA, "q_lora_rank": None}),
    ("deepseek_v3", {**_COMMON, **_MLA, "attention_bias": True}),
    ("gpt2", _GPT2),
    ("gpt2", {**_GPT2, "n_inner": 100}),
    ("opt", _OPT),
    ("opt", {**_OPT, "enable_bias": False}),
]


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
    partial = {"num_hidden_layers": 2, "hidden_size": 128, "intermediate_size": 256}
    for key in ("num_attention_heads", "vocab_size", "num_experts", "num_local_experts"):
        if model_type != "gemma3_text" and key in full:
            partial[key] = full[key]
    if "moe_intermediate_size" in full:
        partial["moe_intermediate_size"] = 64
    assert ModelShape.from_config({"model_type": model_type, **partial}).num_parameters == (
        _meta_parameters(model_type, partial)
    )


def _meta_parameters(model_type: str, values: dict[str, Any]) -> int:
    config = transformers.AutoConfig.for_model(model_type, **values)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())
