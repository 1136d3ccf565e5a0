"""The model families: what each one's layers add to the common decoder."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal


@dataclass(frozen=True, slots=True)
class Flag:
    """A yes or no that a config key may state, with the family's default."""

    default: bool
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """How a family differs from the plain pre-norm decoder with gated MLP and RMS norms."""

    attention: Literal["heads", "mla"] = "heads"
    moe: Literal["none", "mixtral", "qwen", "deepseek", "gpt_oss"] = "none"
    window: Literal["none", "all", "alternate", "every_sixth", "late_layers", "optional"] = "none"
    # Defaults of the config class for keys that a published file may leave out.
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    tie_word_embeddings: bool = False
    config_defaults: tuple[tuple[str, int], ...] = ()
    # Parameters beyond the plain matrices.
    qkv_bias: Flag = Flag(False)
    output_bias: Flag = Flag(False)
    mlp_bias: Flag = Flag(False)
    gated_mlp: bool = True
    norms_per_layer: int = 2
    norm_has_bias: bool = False
    head_norms: bool = False  # RMS norms over head_dim of queries and keys
    attention_sinks: bool = False
    learned_positions: bool = False
    position_offset: int = 0


_ATTENTION_BIAS = Flag(False, "attention_bias")
_YES = Flag(True)

_LLAMA = Family(
    qkv_bias=_ATTENTION_BIAS, output_bias=_ATTENTION_BIAS, mlp_bias=Flag(False, "mlp_bias")
)
_GEMMA2 = Family(
    qkv_bias=_ATTENTION_BIAS,
    output_bias=_ATTENTION_BIAS,
    norms_per_layer=4,
    window="alternate",
    num_key_value_heads=4,
    head_dim=256,
    tie_word_embeddings=True,
    config_defaults=(("sliding_window", 4096),),
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

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "llama": _LLAMA,
        "granite": _LLAMA,
        "mistral": Family(num_key_value_heads=8, window="all"),
        "mixtral": Family(num_key_value_heads=8, moe="mixtral", window="all"),
        "phi3": Family(window="all"),
        "qwen2": Family(qkv_bias=_YES, window="late_layers"),
        "qwen2_moe": Family(
            qkv_bias=Flag(True, "qkv_bias"),
            moe="qwen",
            window="late_layers",
            config_defaults=(("shared_expert_intermediate_size", 5632),),
        ),
        "qwen3": Family(
            qkv_bias=_ATTENTION_BIAS,
            output_bias=_ATTENTION_BIAS,
            head_norms=True,
            head_dim=128,
            window="late_layers",
        ),
        "qwen3_moe": Family(
            qkv_bias=_ATTENTION_BIAS,
            output_bias=_ATTENTION_BIAS,
            head_norms=True,
            moe="qwen",
            window="optional",
        ),
        "gemma": Family(
            qkv_bias=_ATTENTION_BIAS,
            output_bias=_ATTENTION_BIAS,
            head_dim=256,
            tie_word_embeddings=True,
        ),
        "gemma2": _GEMMA2,
        "gemma3_text": Family(
            qkv_bias=_ATTENTION_BIAS,
            output_bias=_ATTENTION_BIAS,
            norms_per_layer=4,
            head_norms=True,
            window="every_sixth",
            num_key_value_heads=4,
            head_dim=256,
            tie_word_embeddings=True,
            config_defaults=(
                ("num_attention_heads", 8),
                ("vocab_size", 262208),
                ("sliding_window", 4096),
                ("max_position_embeddings", 131072),
            ),
        ),
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
        "deepseek_v2": Family(attention="mla", moe="deepseek", qkv_bias=_ATTENTION_BIAS),
        "deepseek_v3": Family(attention="mla", moe="deepseek", qkv_bias=_ATTENTION_BIAS),
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
