"""The table of model families, and the other names that some of them go by."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from pagefleet_memory.family import Family, Flag, Window

_ATTENTION_BIAS = Flag(False, "attention_bias")
_YES = Flag(True)

_LLAMA = Family(
    qkv_bias=_ATTENTION_BIAS, output_bias=_ATTENTION_BIAS, mlp_bias=Flag(False, "mlp_bias")
)
_QWEN2 = Family(qkv_bias=_YES, window="late_layers")
_QWEN3 = Family(
    qkv_bias=_ATTENTION_BIAS,
    output_bias=_ATTENTION_BIAS,
    query_key_norms="head",
    head_dim=128,
    window="late_layers",
)
_QWEN3_MOE = Family(
    qkv_bias=_ATTENTION_BIAS,
    output_bias=_ATTENTION_BIAS,
    query_key_norms="head",
    moe="qwen",
    window="optional",
    num_key_value_heads=4,
)
_DELTA_NETS: tuple[tuple[str, int], ...] = (
    ("linear_conv_kernel_dim", 4),
    ("linear_key_head_dim", 128),
    ("linear_value_head_dim", 128),
    ("linear_num_key_heads", 16),
    ("linear_num_value_heads", 32),
)
_SHARED_EXPERT = ("shared_expert_intermediate_size", 512)
_DEEPSEEK = Family(attention="mla", moe="deepseek", qkv_bias=_ATTENTION_BIAS)
_GEMMA = Family(
    qkv_bias=_ATTENTION_BIAS,
    output_bias=_ATTENTION_BIAS,
    head_dim=256,
    tie_word_embeddings=True,
)
_PLAIN_MLP = Family(
    qkv_bias=_YES,
    output_bias=_YES,
    mlp_bias=_YES,
    gated_mlp=False,
    norm_has_bias=True,
    learned_positions=True,
    tie_word_embeddings=True,
)


def _delta_net(*, experts: bool) -> Family:
    return Family(
        qkv_bias=_ATTENTION_BIAS,
        output_bias=_ATTENTION_BIAS,
        query_key_norms="head",
        gated_query=True,
        full_attention_interval=4,
        moe="qwen" if experts else "none",
        num_key_value_heads=2 if experts else 4,
        head_dim=256,
        config_defaults=(*_DELTA_NETS, _SHARED_EXPERT) if experts else _DELTA_NETS,
    )


def _cohere(*, window: Window, query_key_norms: Literal["none", "heads"]) -> Family:
    return Family(
        qkv_bias=_ATTENTION_BIAS,
        output_bias=_ATTENTION_BIAS,
        norms_per_layer=1,
        query_key_norms=query_key_norms,
        uses_query_key_norms=Flag(False, "use_qk_norm"),
        window=window,
        tie_word_embeddings=True,
        config_defaults=(("sliding_window", 4096),) if window != "none" else (),
    )


def _four_norms(*, window: Window, head_norms: bool, defaults: dict[str, int]) -> Family:
    """Gemma 2 and later: a norm before and after both halves of a layer."""
    return Family(
        qkv_bias=_ATTENTION_BIAS,
        output_bias=_ATTENTION_BIAS,
        norms_per_layer=4,
        query_key_norms="head" if head_norms else "none",
        window=window,
        num_key_value_heads=4,
        head_dim=256,
        tie_word_embeddings=True,
        config_defaults=tuple(defaults.items()),
    )


_GEMMA3 = _four_norms(
    window="every_sixth",
    head_norms=True,
    defaults={
        "num_attention_heads": 8,
        "vocab_size": 262208,
        "sliding_window": 4096,
        "max_position_embeddings": 131072,
    },
)
_GEMMA4 = _four_norms(
    window="every_sixth",
    head_norms=True,
    defaults={
        "num_attention_heads": 8,
        "vocab_size": 262144,
        "sliding_window": 512,
        "max_position_embeddings": 131072,
        "hidden_size_per_layer_input": 256,
    },
)
_GLM = Family(
    qkv_bias=Flag(True, "attention_bias"), num_key_value_heads=2, head_dim=128, window="none"
)

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "llama": _LLAMA,
        "llama4_text": Family(
            qkv_bias=_ATTENTION_BIAS,
            output_bias=_ATTENTION_BIAS,
            moe="llama4",
            window="chunks",
            num_key_value_heads=8,
            head_dim=128,
            config_defaults=(("intermediate_size_mlp", 16384), ("attention_chunk_size", 8192)),
        ),
        "granite": _LLAMA,
        "granitemoe": Family(qkv_bias=_ATTENTION_BIAS, output_bias=_ATTENTION_BIAS, moe="mixtral"),
        "mistral": Family(num_key_value_heads=8, window="all"),
        "mixtral": Family(num_key_value_heads=8, moe="mixtral", window="all"),
        "minimax_m2": Family(
            num_key_value_heads=8, head_dim=128, moe="mixtral", query_key_norms="heads"
        ),
        "phi": Family(
            qkv_bias=_YES,
            output_bias=_YES,
            mlp_bias=_YES,
            gated_mlp=False,
            norms_per_layer=1,
            norm_has_bias=True,
            query_key_norms="head",
            uses_query_key_norms=Flag(False, "qk_layernorm"),
            head_has_bias=True,
        ),
        "phi3": Family(window="all"),
        "qwen2": _QWEN2,
        "qwen2_moe": Family(
            qkv_bias=Flag(True, "qkv_bias"),
            moe="qwen",
            window="late_layers",
            config_defaults=(("shared_expert_intermediate_size", 5632),),
        ),
        "qwen3": _QWEN3,
        "qwen3_moe": _QWEN3_MOE,
        "qwen3_next": _delta_net(experts=True),
        "qwen3_5_text": _delta_net(experts=False),
        "qwen3_5_moe_text": _delta_net(experts=True),
        "gemma": _GEMMA,
        "gemma2": _four_norms(
            window="alternate", head_norms=False, defaults={"sliding_window": 4096}
        ),
        "gemma3_text": _GEMMA3,
        "gemma4_text": _GEMMA4,
        "gpt_oss": Family(
            qkv_bias=Flag(True, "attention_bias"),
            output_bias=Flag(True, "attention_bias"),
            moe="gpt_oss",
            attention_sinks=True,
            window="alternate",
            num_key_value_heads=8,
            head_dim=64,
        ),
        "smollm3": Family(
            qkv_bias=_ATTENTION_BIAS,
            output_bias=_ATTENTION_BIAS,
            mlp_bias=Flag(False, "mlp_bias"),
            num_key_value_heads=4,
            tie_word_embeddings=True,
            window="optional",
        ),
        "olmo2": Family(
            qkv_bias=_ATTENTION_BIAS, output_bias=_ATTENTION_BIAS, query_key_norms="heads"
        ),
        "cohere": _cohere(window="none", query_key_norms="heads"),
        "cohere2": _cohere(window="every_fourth", query_key_norms="none"),
        "starcoder2": Family(
            qkv_bias=Flag(True, "use_bias"),
            output_bias=Flag(True, "use_bias"),
            mlp_bias=Flag(True, "use_bias"),
            gated_mlp=False,
            norm_has_bias=True,
            num_key_value_heads=2,
            tie_word_embeddings=True,
            window="all",
        ),
        "glm": _GLM,
        "glm4": Family(
            qkv_bias=Flag(True, "attention_bias"),
            num_key_value_heads=2,
            head_dim=128,
            norms_per_layer=4,
        ),
        "glm4_moe": Family(
            qkv_bias=_ATTENTION_BIAS,
            moe="deepseek",
            num_key_value_heads=8,
            query_key_norms="head",
            uses_query_key_norms=Flag(False, "use_qk_norm"),
            config_defaults=(("first_k_dense_replace", 1), ("n_shared_experts", 1)),
        ),
        "glm_moe_dsa": Family(
            attention="mla", moe="deepseek", qkv_bias=_ATTENTION_BIAS, sparse_indexer=True
        ),
        "deepseek_v2": _DEEPSEEK,
        "deepseek_v3": _DEEPSEEK,
        "gpt2": _PLAIN_MLP,
        "opt": Family(
            qkv_bias=Flag(True, "enable_bias"),
            output_bias=Flag(True, "enable_bias"),
            mlp_bias=Flag(True, "enable_bias"),
            gated_mlp=False,
            norm_has_bias=True,
            learned_positions=True,
            position_offset=2,
            tie_word_embeddings=True,
        ),
    }
)

# Text models that other names stand for: inner parts of wrappers, and forks.
ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "chatglm": "glm",
        "kimi_k2": "deepseek_v3",
        "llama4": "llama4_text",
        "gemma3": "gemma3_text",
        "gemma4": "gemma4_text",
        "mistral3": "mistral",
        "qwen2_vl": "qwen2",
        "qwen2_vl_text": "qwen2",
        "qwen2_5_vl": "qwen2",
        "qwen2_5_vl_text": "qwen2",
        "qwen3_vl_text": "qwen3",
        "qwen3_vl_moe_text": "qwen3_moe",
        "qwen3_omni_moe_text": "qwen3_moe",
        "qwen3_5": "qwen3_5_text",
        "qwen3_5_moe": "qwen3_5_moe_text",
    }
)


def find_family(model_type: str) -> Family | None:
    """The family of a model type, also under another name; None where unknown."""
    return FAMILIES.get(ALIASES.get(model_type, model_type))
