"""The sizes of a decoder, read from a config.json."""

from dataclasses import dataclass

from pagefleet_memory.config_fields import Config, read_int, read_optional_int
from pagefleet_memory.errors import ShapeError
from pagefleet_memory.families import Family

_MOST_LAYERS = 10_000


@dataclass(frozen=True, slots=True)
class DecoderSizes:
    """The sizes that every family has, read once."""

    num_layers: int
    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    v_head_dim: int
    intermediate_size: int
    kv_lora_rank: int = 0
    q_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    num_experts: int = 0
    experts_per_token: int = 0
    moe_intermediate_size: int = 0
    shared_intermediate_size: int = 0


def read_sizes(config: Config, family: Family) -> DecoderSizes:
    """Sizes of the decoder, with the family's defaults for what the file leaves out."""
    hidden = read_int(config, "hidden_size", "n_embd")
    heads = read_int(config, "num_attention_heads", "n_head")
    if family.attention == "mla":
        return _mla_sizes(config, family, hidden=hidden, heads=heads)
    head_dim = read_int(config, "head_dim", default=family.head_dim or max(1, hidden // heads))
    return DecoderSizes(
        num_layers=read_int(config, "num_hidden_layers", "n_layer", maximum=_MOST_LAYERS),
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=_kv_heads(config, family, heads),
        head_dim=head_dim,
        v_head_dim=head_dim,
        intermediate_size=_intermediate_size(config, hidden),
        **_expert_sizes(config, family),
    )


def _kv_heads(config: Config, family: Family, heads: int) -> int:
    kv_heads = read_int(config, "num_key_value_heads", default=family.num_key_value_heads or heads)
    if heads % kv_heads:
        raise ShapeError(
            f"{kv_heads} does not divide num_attention_heads {heads}",
            field="num_key_value_heads",
            value=kv_heads,
        )
    return kv_heads


def _intermediate_size(config: Config, hidden: int) -> int:
    default = 4 * hidden if "n_embd" in config else None
    return read_int(config, "intermediate_size", "ffn_dim", "n_inner", default=default)


def _mla_sizes(config: Config, family: Family, *, hidden: int, heads: int) -> DecoderSizes:
    nope = read_int(config, "qk_nope_head_dim", default=128)
    rope = read_int(config, "qk_rope_head_dim", default=64)
    return DecoderSizes(
        num_layers=read_int(config, "num_hidden_layers", maximum=_MOST_LAYERS),
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=1,
        head_dim=nope + rope,
        v_head_dim=read_int(config, "v_head_dim", default=128),
        intermediate_size=read_int(config, "intermediate_size"),
        kv_lora_rank=read_int(config, "kv_lora_rank", default=512),
        q_lora_rank=read_optional_int(config, "q_lora_rank") or 0,
        qk_nope_head_dim=nope,
        qk_rope_head_dim=rope,
        **_expert_sizes(config, family),
    )


def _expert_sizes(config: Config, family: Family) -> dict[str, int]:
    if family.moe == "none":
        return {}
    experts = read_int(config, "num_experts", "num_local_experts", "n_routed_experts", minimum=0)
    if experts == 0:
        return {}
    width = read_int(config, "moe_intermediate_size", "intermediate_size")
    return {
        "num_experts": experts,
        "experts_per_token": read_int(config, "num_experts_per_tok", default=2),
        "moe_intermediate_size": width,
        "shared_intermediate_size": _shared_width(config, family, width),
    }


def _shared_width(config: Config, family: Family, expert_width: int) -> int:
    if family.moe == "deepseek":
        return read_int(config, "n_shared_experts", default=0, minimum=0) * expert_width
    return read_int(config, "shared_expert_intermediate_size", default=0, minimum=0)
