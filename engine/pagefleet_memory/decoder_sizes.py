"""The sizes of a decoder, read from a config.json."""

from dataclasses import dataclass, replace

from pagefleet_memory.config_fields import Config, read_bool, read_int, read_optional_int
from pagefleet_memory.errors import ShapeError
from pagefleet_memory.family import Family

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
    dense_intermediate_size: int = 0  # of dense layers among sparse ones, where it differs
    kv_lora_rank: int = 0
    q_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    num_experts: int = 0
    experts_per_token: int = 0
    moe_intermediate_size: int = 0
    shared_intermediate_size: int = 0
    keys_are_values: bool = False  # one projection makes both


def read_sizes(config: Config, family: Family) -> DecoderSizes:
    """Sizes of the decoder, with the family's defaults for what the file leaves out."""
    hidden = read_int(config, "hidden_size", "n_embd")
    heads = read_int(config, "num_attention_heads", "n_head")
    if family.attention == "mla":
        sizes = _mla_sizes(config, hidden=hidden, heads=heads)
    else:
        sizes = _head_sizes(config, family, hidden=hidden, heads=heads)
    return sizes if family.moe == "none" else _with_experts(sizes, config, family)


def _head_sizes(config: Config, family: Family, *, hidden: int, heads: int) -> DecoderSizes:
    head_dim = _head_dim(config, family, hidden, heads)
    return DecoderSizes(
        num_layers=read_int(config, "num_hidden_layers", "n_layer", maximum=_MOST_LAYERS),
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=_kv_heads(config, family, heads),
        head_dim=head_dim,
        v_head_dim=head_dim,
        intermediate_size=_intermediate_size(config, family, hidden),
    )


def global_sizes(config: Config, sizes: DecoderSizes) -> DecoderSizes:
    """Sizes of layers that see all tokens, where the config gives them their own (Gemma 4)."""
    head_dim = read_optional_int(config, "global_head_dim")
    if head_dim is None:
        return sizes
    keys_are_values = read_bool(config, "attention_k_eq_v", default=False)
    kv_heads = sizes.num_key_value_heads
    if keys_are_values:
        kv_heads = read_int(config, "num_global_key_value_heads", default=kv_heads)
    _check_kv_heads("num_global_key_value_heads", kv_heads, sizes.num_attention_heads)
    return replace(
        sizes,
        head_dim=head_dim,
        v_head_dim=head_dim,
        num_key_value_heads=kv_heads,
        keys_are_values=keys_are_values,
    )


def _head_dim(config: Config, family: Family, hidden: int, heads: int) -> int:
    """The stated or the family's width of a head, else an even share of the hidden size."""
    stated = read_optional_int(config, "head_dim") or family.head_dim
    if stated is None and hidden % heads:
        raise ShapeError(
            f"{heads} does not divide hidden_size {hidden}",
            field="num_attention_heads",
            value=heads,
            hint="a config whose heads are of another width states head_dim",
        )
    return stated or hidden // heads


def _kv_heads(config: Config, family: Family, heads: int) -> int:
    kv_heads = read_int(config, "num_key_value_heads", default=family.num_key_value_heads or heads)
    _check_kv_heads("num_key_value_heads", kv_heads, heads)
    return kv_heads


def _check_kv_heads(field: str, kv_heads: int, heads: int) -> None:
    if heads % kv_heads:
        raise ShapeError(
            f"{kv_heads} does not divide num_attention_heads {heads}", field=field, value=kv_heads
        )


def _intermediate_size(config: Config, family: Family, hidden: int) -> int:
    default = 4 * hidden if "n_embd" in config else None
    if family.moe == "qwen":
        default = read_optional_int(config, "moe_intermediate_size")
    return read_int(config, "intermediate_size", "ffn_dim", "n_inner", default=default)


def _mla_sizes(config: Config, *, hidden: int, heads: int) -> DecoderSizes:
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
    )


def _with_experts(sizes: DecoderSizes, config: Config, family: Family) -> DecoderSizes:
    experts = read_int(config, "num_experts", "num_local_experts", "n_routed_experts", minimum=0)
    if experts == 0:
        return sizes
    width = read_int(config, "moe_intermediate_size", "intermediate_size")
    dense = read_int(config, "intermediate_size_mlp") if family.moe == "llama4" else 0
    return replace(
        sizes,
        num_experts=experts,
        experts_per_token=read_int(config, "num_experts_per_tok", default=2),
        moe_intermediate_size=width,
        shared_intermediate_size=_shared_width(config, family, width),
        dense_intermediate_size=dense,
    )


def _shared_width(config: Config, family: Family, expert_width: int) -> int:
    if family.moe == "deepseek":
        return read_int(config, "n_shared_experts", default=0, minimum=0) * expert_width
    if family.moe == "llama4":
        return expert_width
    return read_int(config, "shared_expert_intermediate_size", default=0, minimum=0)
