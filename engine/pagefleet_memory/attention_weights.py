"""The attention half of a layer: what it caches, and its matrices."""

from pagefleet_memory.config_fields import Config, read_bool, read_int
from pagefleet_memory.decoder_sizes import DecoderSizes
from pagefleet_memory.family import Family, Flag
from pagefleet_memory.layers import AttentionShape, StateShape
from pagefleet_memory.matrices import Matrix, linear, vector

_NO_ROWS = AttentionShape(kv_heads=0, k_width=0, v_width=0)


def head_attention(
    config: Config, family: Family, sizes: DecoderSizes, *, window: int | None
) -> tuple[AttentionShape, tuple[Matrix, ...]]:
    """Multi-head, grouped-query or multi-query attention."""
    q_width = sizes.num_attention_heads * sizes.head_dim
    kv_width = sizes.num_key_value_heads * sizes.head_dim
    values = 0 if sizes.keys_are_values else kv_width
    queries = q_width * (2 if family.gated_query else 1)
    bias = read_flag(config, family.qkv_bias)
    matrices = (
        *linear(
            "self_attn.qkv_proj",
            queries + kv_width + values,
            sizes.hidden_size,
            "rows",
            kv_rows=kv_width + values,
            bias=bias,
        ),
        *linear(
            "self_attn.o_proj",
            sizes.hidden_size,
            q_width,
            "columns",
            bias=read_flag(config, family.output_bias),
        ),
        *_query_key_norms(config, family, sizes),
    )
    if family.attention_sinks:
        matrices += (vector("self_attn.sinks", sizes.num_attention_heads, "rows"),)
    shape = AttentionShape(
        kv_heads=sizes.num_key_value_heads,
        k_width=sizes.head_dim,
        v_width=sizes.head_dim,
        window=window,
    )
    return shape, matrices


def _query_key_norms(config: Config, family: Family, sizes: DecoderSizes) -> tuple[Matrix, ...]:
    if family.query_key_norms == "none" or not read_flag(config, family.uses_query_key_norms):
        return ()
    if family.query_key_norms == "head":
        width = 2 * sizes.head_dim * (2 if family.norm_has_bias else 1)
        return (vector("self_attn.qk_norm", width),)
    kv_width = sizes.num_key_value_heads * sizes.head_dim
    q_width = sizes.num_attention_heads * sizes.head_dim
    return (vector("self_attn.qk_norm", q_width + kv_width, "rows", kv_rows=kv_width),)


def latent_attention(
    config: Config, family: Family, sizes: DecoderSizes, *, window: int | None, indexer: bool
) -> tuple[AttentionShape, tuple[Matrix, ...]]:
    """Multi-head latent attention: the cache holds one latent and one rotary key per token."""
    h, heads, latent = sizes.hidden_size, sizes.num_attention_heads, sizes.kv_lora_rank
    bias = read_flag(config, family.qkv_bias)
    query_in = sizes.q_lora_rank or h
    matrices: tuple[Matrix, ...] = ()
    if sizes.q_lora_rank:
        matrices += linear("self_attn.q_a_proj", sizes.q_lora_rank, h, "whole", bias=bias)
        matrices += (vector("self_attn.q_a_layernorm", sizes.q_lora_rank),)
    down = latent + sizes.qk_rope_head_dim
    up = heads * (sizes.qk_nope_head_dim + sizes.v_head_dim)
    matrices += (
        *linear("self_attn.q_b_proj", heads * sizes.head_dim, query_in, "rows"),
        *linear("self_attn.kv_a_proj_with_mqa", down, h, "whole", bias=bias),
        vector("self_attn.kv_a_layernorm", latent),
        *linear("self_attn.kv_b_proj", up, latent, "rows"),
        *linear("self_attn.o_proj", h, heads * sizes.v_head_dim, "columns", bias=bias),
    )
    index_width = read_int(config, "index_head_dim", default=128) if indexer else 0
    if indexer:
        matrices += _indexer(config, sizes, index_width)
    shape = AttentionShape(
        kv_heads=1,
        k_width=latent,
        v_width=sizes.qk_rope_head_dim,
        replicated=True,
        window=window,
        index_width=index_width,
    )
    return shape, matrices


def _indexer(config: Config, sizes: DecoderSizes, width: int) -> tuple[Matrix, ...]:
    """What chooses the tokens that a sparse layer attends to; each rank runs it whole."""
    heads = read_int(config, "index_n_heads", default=32)
    return (
        *linear("self_attn.indexer.wq_b", heads * width, sizes.q_lora_rank, "whole"),
        *linear("self_attn.indexer.wk", width, sizes.hidden_size, "whole"),
        *linear("self_attn.indexer.weights_proj", heads, sizes.hidden_size, "whole"),
        vector("self_attn.indexer.k_norm", 2 * width),
    )


def delta_net(
    config: Config, sizes: DecoderSizes
) -> tuple[AttentionShape, StateShape, tuple[Matrix, ...]]:
    """A gated delta net: linear attention with a convolution in front and a state per head."""
    key_heads = read_int(config, "linear_num_key_heads")
    value_heads = read_int(config, "linear_num_value_heads")
    key_width = read_int(config, "linear_key_head_dim")
    value_width = read_int(config, "linear_value_head_dim")
    kernel = read_int(config, "linear_conv_kernel_dim")
    keys, values = key_heads * key_width, value_heads * value_width
    channels = 2 * keys + values
    matrices = (
        *linear("linear_attn.in_proj_qkv", channels, sizes.hidden_size, "rows"),
        *linear("linear_attn.in_proj_z", values, sizes.hidden_size, "rows"),
        *linear("linear_attn.in_proj_ba", 2 * value_heads, sizes.hidden_size, "rows"),
        *linear("linear_attn.conv1d", channels, kernel, "rows"),
        *linear("linear_attn.out_proj", sizes.hidden_size, values, "columns"),
        vector("linear_attn.gates", 2 * value_heads, "rows"),
        vector("linear_attn.norm", value_width),
    )
    state = StateShape(
        conv_channels=channels,
        conv_steps=kernel - 1,
        heads=value_heads,
        key_width=key_width,
        value_width=value_width,
    )
    return _NO_ROWS, state, matrices


def read_flag(config: Config, flag: Flag) -> bool:
    """What the config says of a family's flag, else the family's default."""
    return read_bool(config, flag.key, default=flag.default) if flag.key else flag.default
