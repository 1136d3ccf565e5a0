"""Reading a Hugging Face config.json into a ModelShape."""

import re
from collections.abc import Mapping

from pagefleet_memory.checkpoint import CheckpointSummary
from pagefleet_memory.config_fields import Config, read_bool, read_int, read_str, read_str_list
from pagefleet_memory.decoder import decoder_layers
from pagefleet_memory.decoder_sizes import DecoderSizes, read_sizes
from pagefleet_memory.dtypes import COMPUTE_DTYPES
from pagefleet_memory.errors import ShapeError
from pagefleet_memory.families import FAMILIES, find_family
from pagefleet_memory.family import Family
from pagefleet_memory.matrices import Matrix
from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.quantization import QuantizationRules, read_quantization
from pagefleet_memory.rope import rope_tables
from pagefleet_memory.text_config import TextConfig, text_config
from pagefleet_memory.towers import Tower, read_tower

# A model that keeps a recurrent state in a form that no family here describes.
_STATEFUL_KEYS = ("ssm_cfg", "state_size", "mamba_d_state", "conv_kernel")
_STATEFUL_NAMES = re.compile("mamba|rwkv|jamba|zamba|recurrent|nemotron_h|falcon_h1|kimi_linear")


def read_shape(
    config: Mapping[str, object],
    checkpoint: CheckpointSummary | None = None,
    quantization: QuantizationRules | None = None,
) -> ModelShape:
    """The shape that a config.json describes; raises ShapeError with the field at fault.

    `quantization` stands in where the file names none: weights packed while they load.
    """
    if not isinstance(config, Mapping):
        raise ShapeError("must be a JSON object", field="config.json", value=config)
    found = text_config(config)
    model_type = found.model_type
    family = _family(found.config, model_type, config, checkpoint)
    text = _with_defaults(found.config, family)
    sizes = read_sizes(text, family)
    rules = read_quantization(config) or read_quantization(text) or quantization
    decoder = decoder_layers(text, family, sizes, rules.packing_of if rules else _unpacked)
    vocab = read_int(text, "vocab_size")
    positions = read_int(text, "max_position_embeddings", "n_positions", default=2048)
    tied = _ties_embeddings(found, family)
    tower = read_tower(found, sizes.hidden_size)
    _refuse_projected_embedding(text, sizes)
    learned = (positions + family.position_offset) * sizes.hidden_size
    norm = sizes.hidden_size * (2 if family.norm_has_bias else 1)
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
        layer_kinds=decoder.kinds,
        layer_pattern=decoder.pattern,
        embedding_parameters=vocab * sizes.hidden_size + learned * family.learned_positions,
        head_parameters=0 if tied else vocab * sizes.hidden_size,
        final_parameters=norm + vocab * family.head_has_bias,
        num_experts=sizes.num_experts,
        experts_per_token=sizes.experts_per_token,
        moe_intermediate_size=sizes.moe_intermediate_size,
        kv_lora_rank=sizes.kv_lora_rank,
        tower_parameters=tower.parameters,
        pixels_per_token=tower.pixels_per_token,
        head_packing=rules.head_packing if rules and not tied else "",
        rope_tables=rope_tables(text, sizes, family),
        quantization=rules.quantization if rules else None,
        checkpoint=checkpoint,
        remarks=(*_guessed(model_type), *_remarks(found, tower)),
    )


def _unpacked(layer: int, matrix: Matrix) -> str:
    return ""


def _with_defaults(text: Config, family: Family) -> Config:
    return {**dict(family.config_defaults), **{k: v for k, v in text.items() if v is not None}}


def _family(
    text: Config, model_type: str, config: Config, checkpoint: CheckpointSummary | None
) -> Family:
    if any(text.get(key) for key in _STATEFUL_KEYS) or _STATEFUL_NAMES.search(model_type):
        raise ShapeError(
            f"{model_type!r} keeps recurrent state, which is not supported",
            field="model_type",
            value=model_type,
            hint="use a model whose layers all attend",
        )
    family = find_family(model_type)
    if family is None and checkpoint is not None and _generates(config):
        return Family(attention="mla" if text.get("kv_lora_rank") else "heads")
    if family is None:
        raise ShapeError(
            f"{model_type!r} is not a supported architecture" if model_type else "is missing",
            field="model_type",
            value=model_type,
            hint="supported: "
            + ", ".join(sorted(FAMILIES))
            + "; of other causal language models, those whose weight files are at hand",
        )
    return family


def _generates(config: Config) -> bool:
    """Whether the architecture names a causal language model, of a family known or not."""
    return _architecture(config).endswith("ForCausalLM")


def _ties_embeddings(found: TextConfig, family: Family) -> bool:
    """The text model's own word, else what the wrapper states, else the family's default."""
    for section in (found.config, *reversed(found.wrappers)):
        if section.get("tie_word_embeddings") is not None:
            return read_bool(section, "tie_word_embeddings", default=False)
    return family.tie_word_embeddings


def _architecture(config: Config) -> str:
    names = read_str_list(config, "architectures")
    return names[0] if names else ""


def _guessed(model_type: str) -> tuple[str, ...]:
    if find_family(model_type):
        return ()
    return (
        f"{model_type or 'the architecture'} is not known: weights are counted from the files, "
        "and layers taken for plain attention",
    )


def _remarks(found: TextConfig, tower: Tower) -> tuple[str, ...]:
    wrapper = found.wrapper_type or found.model_type
    if tower.unknown:
        names = ", ".join(tower.unknown)
        return (f"{wrapper}: the text model only; {names} counts when files are read",)
    if tower.parameters:
        return (f"{wrapper}: the text model and {tower.parameters} parameters of towers beside it",)
    return (f"{wrapper}: the text model only",) if found.wrappers else ()


def _stored_dtype(config: Config, text: Config, checkpoint: CheckpointSummary | None) -> str:
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


def _refuse_projected_embedding(text: Config, sizes: DecoderSizes) -> None:
    width = read_int(text, "word_embed_proj_dim", default=sizes.hidden_size)
    if width != sizes.hidden_size:
        raise ShapeError(
            f"{width} differs from hidden_size {sizes.hidden_size}, which is not supported",
            field="word_embed_proj_dim",
            value=width,
        )
    if read_int(text, "hidden_size_per_layer_input", default=0, minimum=0):
        raise ShapeError(
            "embeddings per layer are not supported",
            field="hidden_size_per_layer_input",
            hint="models whose config sets it to 0 work",
        )
