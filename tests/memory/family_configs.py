"""Small configs of every model family, in sizes where heads, widths and biases all differ."""

from typing import Any

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

_SIGLIP = {
    "model_type": "siglip_vision_model",
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 56,
    "patch_size": 14,
    "vision_use_head": False,
}
_CLIP = {**_SIGLIP, "model_type": "clip_vision_model"}
_PIXTRAL = {
    "model_type": "pixtral",
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "head_dim": 12,
    "image_size": 56,
    "patch_size": 14,
}
_PATCHES = {"depth": 2, "num_heads": 4, "patch_size": 14, "spatial_merge_size": 2}
_LLAMA = {"model_type": "llama", **_COMMON}
_MISTRAL = {"model_type": "mistral", **_COMMON}
_LLAMA4_TOWER = {
    "model_type": "llama4_vision_model",
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 56,
    "patch_size": 14,
    "pixel_shuffle_ratio": 0.5,
    "projector_input_dim": 40,
    "projector_output_dim": 40,
    "vision_output_dim": 40,
}
_GEMMA4_TOWER = {
    "model_type": "gemma4_vision",
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 12,
    "position_embedding_size": 64,
}

WRAPPERS: list[tuple[str, dict[str, Any]]] = [
    ("llava", {"text_config": _LLAMA, "vision_config": _CLIP}),
    ("llava", {"text_config": _MISTRAL, "vision_config": _PIXTRAL}),
    (
        "llava_next",
        {"text_config": _LLAMA, "vision_config": _SIGLIP, "vision_feature_layer": [-2, -1]},
    ),
    (
        "mistral3",
        {
            "text_config": _MISTRAL,
            "vision_config": _PIXTRAL,
            "spatial_merge_size": 2,
            "tie_word_embeddings": False,
        },
    ),
    (
        "gemma3",
        {
            "text_config": {"model_type": "gemma3_text", **_COMMON, "head_dim": 40},
            "vision_config": _SIGLIP,
            "mm_tokens_per_image": 4,
        },
    ),
    (
        "gemma4",
        {
            "text_config": {"model_type": "gemma4_text", **_COMMON, **_GEMMA4},
            "vision_config": _GEMMA4_TOWER,
            "audio_config": None,
        },
    ),
    (
        "llama4",
        {
            "text_config": {"model_type": "llama4_text", **_COMMON, **_LLAMA4},
            "vision_config": _LLAMA4_TOWER,
        },
    ),
    (
        "qwen2_vl",
        {
            "text_config": {"model_type": "qwen2_vl_text", **_COMMON},
            "vision_config": {**_PATCHES, "embed_dim": 48, "hidden_size": 96, "mlp_ratio": 2},
        },
    ),
    (
        "qwen2_5_vl",
        {
            "text_config": {"model_type": "qwen2_5_vl_text", **_COMMON},
            "vision_config": {
                **_PATCHES,
                "hidden_size": 48,
                "intermediate_size": 72,
                "out_hidden_size": 96,
            },
        },
    ),
    (
        "qwen3_vl",
        {
            "text_config": {"model_type": "qwen3_vl_text", **_COMMON, "head_dim": 40},
            "vision_config": {
                **_PATCHES,
                "hidden_size": 48,
                "intermediate_size": 72,
                "out_hidden_size": 96,
                "num_position_embeddings": 16,
                "deepstack_visual_indexes": [0, 1],
            },
        },
    ),
    (
        "qwen3_5",
        {
            "text_config": {"model_type": "qwen3_5_text", **_COMMON, **_DELTA_NET},
            "vision_config": {
                **_PATCHES,
                "hidden_size": 48,
                "intermediate_size": 72,
                "out_hidden_size": 96,
                "num_position_embeddings": 16,
            },
        },
    ),
]
