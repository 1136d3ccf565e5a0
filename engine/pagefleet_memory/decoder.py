"""The decoder layers of a config.json: geometry and exact parameter counts, layer by layer."""

from pagefleet_memory.config_fields import (
    Config,
    read_bool,
    read_int,
    read_int_list,
    read_str_list,
)
from pagefleet_memory.decoder_sizes import DecoderSizes
from pagefleet_memory.errors import ShapeError
from pagefleet_memory.families import Family, Flag
from pagefleet_memory.layers import AttentionShape, LayerKind, LayerWeights


def decoder_layers(
    config: Config, family: Family, sizes: DecoderSizes
) -> tuple[tuple[LayerKind, ...], tuple[int, ...]]:
    """The distinct layer kinds, and for each layer the index of its kind."""
    windows = _layer_windows(config, family, sizes.num_layers)
    sparse = _sparse_layers(config, family, sizes.num_layers)
    kinds: dict[LayerKind, int] = {}
    pattern: list[int] = []
    built: dict[tuple[int | None, bool], LayerKind] = {}
    for key in zip(windows, sparse, strict=True):
        kind = built.get(key)
        if kind is None:
            kind = built[key] = _layer_kind(config, family, sizes, window=key[0], sparse=key[1])
        pattern.append(kinds.setdefault(kind, len(kinds)))
    return tuple(kinds), tuple(pattern)


def _layer_windows(config: Config, family: Family, num_layers: int) -> list[int | None]:
    window = read_int(
        config,
        "sliding_window",
        default=dict(family.config_defaults).get("sliding_window", 0),
        minimum=0,
    )
    if not window or not _uses_window(config, family):
        return [None] * num_layers
    types = read_str_list(config, "layer_types")
    if types:
        if len(types) != num_layers:
            raise ShapeError(
                f"{len(types)} entries for {num_layers} layers", field="layer_types", value=types
            )
        return [window if name == "sliding_attention" else None for name in types]
    return [window if _slides(config, family, layer) else None for layer in range(num_layers)]


def _uses_window(config: Config, family: Family) -> bool:
    if family.window in ("late_layers", "optional"):
        return read_bool(config, "use_sliding_window", default=False)
    return family.window != "none"


def _slides(config: Config, family: Family, layer: int) -> bool:
    if family.window == "alternate":
        return layer % 2 == 0
    if family.window == "every_sixth":
        return (layer + 1) % read_int(config, "sliding_window_pattern", default=6) != 0
    if family.window == "late_layers":
        return layer >= read_int(config, "max_window_layers", default=28, minimum=0)
    return True


def _sparse_layers(config: Config, family: Family, num_layers: int) -> list[bool]:
    """Which layers hold routed experts in place of the dense MLP."""
    if family.moe in ("none", "deepseek"):
        dense = read_int(config, "first_k_dense_replace", default=0, minimum=0)
        return [family.moe == "deepseek" and layer >= dense for layer in range(num_layers)]
    step = read_int(config, "decoder_sparse_step", default=1)
    dense_layers = set(read_int_list(config, "mlp_only_layers"))
    return [layer not in dense_layers and (layer + 1) % step == 0 for layer in range(num_layers)]


def _layer_kind(
    config: Config, family: Family, sizes: DecoderSizes, *, window: int | None, sparse: bool
) -> LayerKind:
    attention = _mla_attention if family.attention == "mla" else _head_attention
    shape, weights = attention(config, family, sizes, window)
    sparse = sparse and sizes.num_experts > 0
    mlp = _expert_weights(family, sizes) if sparse else _dense_weights(config, family, sizes)
    norm_width = sizes.hidden_size * (2 if family.norm_has_bias else 1)
    return LayerKind(
        attention=shape,
        weights=LayerWeights(
            heads=weights.heads,
            kv_heads=weights.kv_heads,
            mlp=mlp.mlp,
            experts=mlp.experts,
            replicated=weights.replicated + mlp.replicated + family.norms_per_layer * norm_width,
        ),
    )


def _head_attention(
    config: Config, family: Family, sizes: DecoderSizes, window: int | None
) -> tuple[AttentionShape, LayerWeights]:
    q_width = sizes.num_attention_heads * sizes.head_dim
    kv_width = sizes.num_key_value_heads * sizes.head_dim
    qkv_bias = _flag(config, family.qkv_bias)
    weights = LayerWeights(
        heads=2 * sizes.hidden_size * q_width
        + q_width * qkv_bias
        + sizes.num_attention_heads * family.attention_sinks,
        kv_heads=2 * (sizes.hidden_size + qkv_bias) * kv_width,
        mlp=0,
        experts=0,
        replicated=sizes.hidden_size * _flag(config, family.output_bias)
        + 2 * sizes.head_dim * family.head_norms,
    )
    shape = AttentionShape(
        kv_heads=sizes.num_key_value_heads,
        k_width=sizes.head_dim,
        v_width=sizes.head_dim,
        window=window,
    )
    return shape, weights


def _mla_attention(
    config: Config, family: Family, sizes: DecoderSizes, window: int | None
) -> tuple[AttentionShape, LayerWeights]:
    """Multi-head latent attention: the cache holds one latent and one rotary key per token."""
    h, heads, latent = sizes.hidden_size, sizes.num_attention_heads, sizes.kv_lora_rank
    bias = _flag(config, family.qkv_bias)
    down_width = latent + sizes.qk_rope_head_dim
    q_in = sizes.q_lora_rank or h
    query_down = (h + bias + 1) * sizes.q_lora_rank  # projection, bias and norm
    weights = LayerWeights(
        heads=q_in * heads * sizes.head_dim
        + latent * heads * (sizes.qk_nope_head_dim + sizes.v_head_dim)
        + heads * sizes.v_head_dim * h,
        kv_heads=0,
        mlp=0,
        experts=0,
        replicated=query_down + (h + bias) * down_width + latent + h * bias,
    )
    shape = AttentionShape(
        kv_heads=1,
        k_width=latent,
        v_width=sizes.qk_rope_head_dim,
        replicated=True,
        window=window,
    )
    return shape, weights


def _dense_weights(config: Config, family: Family, sizes: DecoderSizes) -> LayerWeights:
    h, width = sizes.hidden_size, sizes.intermediate_size
    bias = _flag(config, family.mlp_bias)
    matrices = 3 if family.gated_mlp else 2
    return LayerWeights(
        heads=0,
        kv_heads=0,
        mlp=matrices * h * width + (matrices - 1) * width * bias,
        experts=0,
        replicated=h * bias,
    )


def _expert_weights(family: Family, sizes: DecoderSizes) -> LayerWeights:
    h, width, experts = sizes.hidden_size, sizes.moe_intermediate_size, sizes.num_experts
    router = h * experts
    routed = experts * 3 * h * width
    shared = 3 * h * sizes.shared_intermediate_size
    if family.moe == "qwen" and shared:
        router += h  # the gate of the shared expert
    if family.moe == "gpt_oss":
        router += experts
        routed += experts * (2 * width + h)
    return LayerWeights(heads=0, kv_heads=0, mlp=shared, experts=routed, replicated=router)


def _flag(config: Config, flag: Flag) -> bool:
    return read_bool(config, flag.key, default=flag.default) if flag.key else flag.default
