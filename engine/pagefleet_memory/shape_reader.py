"""Reading a Hugging Face config.json into a ModelShape."""

from collections.abc import Mapping

from pagefleet_memory.checkpoint import CheckpointSummary
from pagefleet_memory.config_fields import (
    read_bool,
    read_int,
    read_mapping,
    read_str,
    read_str_list,
)
from pagefleet_memory.decoder import decoder_layers
from pagefleet_memory.decoder_sizes import DecoderSizes, read_sizes
from pagefleet_memory.dtypes import COMPUTE_DTYPES
from pagefleet_memory.errors import ShapeError
from pagefleet_memory.families import FAMILIES, Family
from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.quantization import read_quantization

# A model that keeps a recurrent state beside or in place of a KV cache.
_STATEFUL_KEYS = ("ssm_cfg", "state_size", "mamba_d_state", "linear_num_value_heads", "conv_kernel")
_STATEFUL_LAYERS = frozenset({"linear_attention", "mamba", "recurrent", "conv"})


def read_shape(
    config: Mapping[str, object], checkpoint: CheckpointSummary | None = None
) -> ModelShape:
    """The shape that a config.json describes; raises ShapeError with the field at fault."""
    if not isinstance(config, Mapping):
        raise ShapeError("must be a JSON object", field="config.json", value=config)
    text, remarks = _text_part(config)
    model_type = read_str(text, "model_type", default="")
    family = _family(text, model_type)
    text = {**dict(family.config_defaults), **{k: v for k, v in text.items() if v is not None}}
    sizes = read_sizes(text, family)
    kinds, pattern = decoder_layers(text, family, sizes)
    tied = read_bool(text, "tie_word_embeddings", default=family.tie_word_embeddings)
    vocab = read_int(text, "vocab_size")
    positions = read_int(text, "max_position_embeddings", "n_positions", default=2048)
    width = read_int(text, "word_embed_proj_dim", default=sizes.hidden_size)
    _refuse_projected_embedding(width, sizes)
    learned = (positions + family.position_offset) * sizes.hidden_size
    return ModelShape(
        architecture=_architecture(config),
        model_type=model_type,
        num_layers=sizes.num_layers,
        hidden_size=sizes.hidden_size,
        num_attention_heads=sizes.num_attention_heads,
        num_key_value_heads=sizes.num_key_value_heads,
        head_dim=sizes.head_dim,
        v_head_dim=sizes.v_head_dim,
        intermediate_size=sizes.intermediate_size,
        vocab_size=vocab,
        tie_word_embeddings=tied,
        max_position_embeddings=positions,
        dtype=_stored_dtype(config, text, checkpoint),
        layer_kinds=kinds,
        layer_pattern=pattern,
        embedding_parameters=vocab * sizes.hidden_size + learned * family.learned_positions,
        head_parameters=0 if tied else vocab * sizes.hidden_size,
        final_parameters=sizes.hidden_size * (2 if family.norm_has_bias else 1),
        num_experts=sizes.num_experts,
        experts_per_token=sizes.experts_per_token,
        moe_intermediate_size=sizes.moe_intermediate_size,
        kv_lora_rank=sizes.kv_lora_rank,
        quantization=read_quantization(config) or read_quantization(text),
        checkpoint=checkpoint,
        remarks=remarks,
    )


def _text_part(config: Mapping[str, object]) -> tuple[Mapping[str, object], tuple[str, ...]]:
    text = read_mapping(config, "text_config")
    if text is None:
        return config, ()
    wrapper = read_str(config, "model_type", default="multimodal")
    text = dict(text)
    text.setdefault("model_type", f"{wrapper}_text")
    return text, (f"{wrapper}: the text model only; towers beside it count when files are read",)


def _family(text: Mapping[str, object], model_type: str) -> Family:
    layer_types = read_str_list(text, "layer_types")
    if any(text.get(key) for key in _STATEFUL_KEYS) or _STATEFUL_LAYERS & set(layer_types):
        raise ShapeError(
            f"{model_type!r} keeps recurrent state, which is not supported",
            field="model_type",
            value=model_type,
            hint="use a model whose layers all attend",
        )
    family = FAMILIES.get(model_type)
    if family is None:
        raise ShapeError(
            f"{model_type!r} is not a supported architecture" if model_type else "is missing",
            field="model_type",
            value=model_type,
            hint="supported: " + ", ".join(sorted(FAMILIES)),
        )
    return family


def _architecture(config: Mapping[str, object]) -> str:
    names = read_str_list(config, "architectures")
    return names[0] if names else ""


def _stored_dtype(
    config: Mapping[str, object], text: Mapping[str, object], checkpoint: CheckpointSummary | None
) -> str:
    if checkpoint is not None and checkpoint.dtype is not None:
        return checkpoint.dtype
    for section in (text, config):
        for key in ("dtype", "torch_dtype"):
            name = read_str(section, key, default="").removeprefix("torch.")
            if name in COMPUTE_DTYPES:
                return name
            if name not in ("", "auto"):
                raise ShapeError(
                    f"unknown dtype {name!r}",
                    field=key,
                    value=name,
                    hint="use one of " + ", ".join(COMPUTE_DTYPES),
                )
    return "float32"  # what the format means when a file does not say


def _refuse_projected_embedding(width: int, sizes: DecoderSizes) -> None:
    if width != sizes.hidden_size:
        raise ShapeError(
            f"{width} differs from hidden_size {sizes.hidden_size}, which is not supported",
            field="word_embed_proj_dim",
            value=width,
        )
