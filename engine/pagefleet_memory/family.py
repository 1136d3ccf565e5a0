"""Family: how a model family differs from the plain pre-norm decoder."""

from dataclasses import dataclass
from typing import Literal

Window = Literal[
    "none", "all", "alternate", "every_fourth", "every_sixth", "late_layers", "optional", "chunks"
]
Experts = Literal["none", "mixtral", "qwen", "deepseek", "gpt_oss", "llama4"]


@dataclass(frozen=True, slots=True)
class Flag:
    """A yes or no that a config key may state, with the family's default."""

    default: bool
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """How a family differs from the plain pre-norm decoder with gated MLP and RMS norms."""

    attention: Literal["heads", "mla"] = "heads"
    moe: Experts = "none"
    window: Window = "none"
    # Every n-th layer attends and the others are gated delta nets; 0 where all attend.
    full_attention_interval: int = 0
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
    gated_query: bool = False  # the query projection also makes an output gate
    norms_per_layer: int = 2
    norm_has_bias: bool = False
    # Norms of queries and keys: of one head's width, or over all heads.
    query_key_norms: Literal["none", "head", "heads"] = "none"
    uses_query_key_norms: Flag = Flag(True)
    attention_sinks: bool = False
    sparse_indexer: bool = False
    head_has_bias: bool = False
    learned_positions: bool = False
    position_offset: int = 0
