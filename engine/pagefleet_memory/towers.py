"""Encoders beside a text model: the parameters of vision and audio towers and their projectors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pagefleet_memory.config_fields import (
    Config,
    read_bool,
    read_int,
    read_int_list,
    read_number,
    read_str,
)
from pagefleet_memory.errors import ShapeError
from pagefleet_memory.text_config import TextConfig

_MOST_LAYERS = 10_000


@dataclass(frozen=True, slots=True)
class Tower:
    """What stands beside the text model."""

    parameters: int = 0
    unknown: tuple[str, ...] = ()  # sections whose size no rule here gives
    pixels_per_token: int = 0  # numbers of an image behind one token of the text model


def read_tower(found: TextConfig, text_hidden: int) -> Tower:
    """The towers of a wrapper; nothing where the model is text alone."""
    parameters = 0
    unknown: list[str] = []
    for name in ("vision_config", "audio_config"):
        section = found.section(name)
        if not section:
            continue
        kind = read_str(section, "model_type", default=found.wrapper_type)
        counter = _TOWERS.get(kind)
        if counter is None:
            unknown.append(f"{name} {kind!r}" if kind else name)
            continue
        wrapper = found.wrappers[-1] if found.wrappers else found.config
        parameters += counter(section, wrapper, text_hidden)
    return Tower(parameters, tuple(unknown), _pixels_per_token(found) if parameters else 0)


def _pixels_per_token(found: TextConfig) -> int:
    """Three channels of the square that one token stands for: a patch, or several merged."""
    vision = found.section("vision_config")
    if not vision:
        return 0
    wrapper = found.wrappers[-1] if found.wrappers else found.config
    tokens = read_int(wrapper, "mm_tokens_per_image", default=0, minimum=0)
    if tokens:
        return 3 * read_int(vision, "image_size", default=224) ** 2 // tokens
    merged = read_int(wrapper, "spatial_merge_size", default=0, minimum=0)
    merged = merged or read_int(vision, "spatial_merge_size", "pooling_kernel_size", default=1)
    if vision.get("pixel_shuffle_ratio") is not None:
        merged = max(1, round(1 / read_number(vision, "pixel_shuffle_ratio", default=1.0)))
    return 3 * (read_int(vision, "patch_size", default=14) * merged) ** 2


def _layers(config: Config, *names: str, default: int) -> int:
    return read_int(config, *names, default=default, maximum=_MOST_LAYERS)


def _dense(inputs: int, outputs: int, *, bias: bool = True) -> int:
    return inputs * outputs + outputs * bias


def _encoder_layer(hidden: int, width: int) -> int:
    """A pre-norm layer with biases everywhere and a two-matrix MLP."""
    attention = 4 * _dense(hidden, hidden)
    return attention + _dense(hidden, width) + _dense(width, hidden) + 4 * hidden


def _patches(config: Config, *, image: int, patch: int) -> int:
    side = read_int(config, "image_size", default=image)
    return (side // read_int(config, "patch_size", default=patch)) ** 2


def _pixels(config: Config, *, patch: int) -> int:
    channels = read_int(config, "num_channels", "in_channels", "in_chans", default=3)
    return channels * read_int(config, "patch_size", default=patch) ** 2


def _siglip(config: Config, wrapper: Config, text_hidden: int) -> int:
    hidden = read_int(config, "hidden_size", default=768)
    width = read_int(config, "intermediate_size", default=3072)
    layers = _layers(config, "num_hidden_layers", default=12) * _encoder_layer(hidden, width)
    patches = _patches(config, image=224, patch=16)
    embedding = _dense(_pixels(config, patch=16), hidden) + patches * hidden
    head = 0
    if read_bool(config, "vision_use_head", default=True):
        pooling = 4 * _dense(hidden, hidden) + _dense(hidden, width) + _dense(width, hidden)
        head = pooling + 3 * hidden
    tower = embedding + layers + 2 * hidden + head
    return tower + _projector(wrapper, hidden, text_hidden)


def _clip(config: Config, wrapper: Config, text_hidden: int) -> int:
    hidden = read_int(config, "hidden_size", default=768)
    width = read_int(config, "intermediate_size", default=3072)
    layers = _layers(config, "num_hidden_layers", default=12) * _encoder_layer(hidden, width)
    rows = _patches(config, image=224, patch=32) + 1
    embedding = hidden + _pixels(config, patch=32) * hidden + rows * hidden
    return embedding + layers + 4 * hidden + _projector(wrapper, hidden, text_hidden)


def _pixtral(config: Config, wrapper: Config, text_hidden: int) -> int:
    hidden = read_int(config, "hidden_size", default=1024)
    width = read_int(config, "intermediate_size", default=4096)
    layer = 4 * hidden * hidden + 3 * hidden * width + 2 * hidden
    layers = _layers(config, "num_hidden_layers", default=24) * layer
    tower = _pixels(config, patch=16) * hidden + hidden + layers
    return tower + _projector(wrapper, hidden, text_hidden)


def _projector(wrapper: Config, hidden: int, text_hidden: int) -> int:
    """What brings a tower's features to the text model's width, by the wrapper's type."""
    kind = read_str(wrapper, "model_type", default="")
    if kind == "gemma3":
        return hidden * text_hidden + hidden
    bias = read_bool(wrapper, "multimodal_projector_bias", default=kind != "mistral3")
    inputs = hidden * _feature_layers(wrapper)
    count = _dense(inputs, text_hidden, bias=bias) + _dense(text_hidden, text_hidden, bias=bias)
    if kind == "mistral3":
        merged = read_int(wrapper, "spatial_merge_size", default=2) ** 2
        count += merged * hidden * hidden + hidden
    if kind.startswith("llava_next"):
        count += text_hidden  # the learned line break of an image
    return count


def _feature_layers(wrapper: Config) -> int:
    """How many layers' features are joined; a single index is one."""
    value = wrapper.get("vision_feature_layer")
    if not isinstance(value, list | tuple):
        return 1
    if not value:
        raise ShapeError("names no layer", field="vision_feature_layer", value=value)
    return len(value)


def _qwen2_vl(config: Config, wrapper: Config, text_hidden: int) -> int:
    hidden = read_int(config, "embed_dim", default=1280)
    width = hidden * read_int(config, "mlp_ratio", default=4)
    depth = _layers(config, "depth", default=32)
    patches = _pixels(config, patch=14) * read_int(config, "temporal_patch_size", default=2)
    merger = _merger(config, hidden, read_int(config, "hidden_size", default=text_hidden))
    return patches * hidden + depth * _encoder_layer(hidden, width) + 2 * hidden + merger


def _qwen2_5_vl(config: Config, wrapper: Config, text_hidden: int) -> int:
    hidden = read_int(config, "hidden_size", default=1280)
    width = read_int(config, "intermediate_size", default=3420)
    depth = _layers(config, "depth", default=32)
    gated = 2 * _dense(hidden, width) + _dense(width, hidden)
    layer = 4 * _dense(hidden, hidden) + gated + 2 * hidden
    patches = _pixels(config, patch=14) * read_int(config, "temporal_patch_size", default=2)
    merger = _merger(config, hidden, read_int(config, "out_hidden_size", default=text_hidden))
    return patches * hidden + depth * layer + hidden + merger


def _qwen3_vl(config: Config, wrapper: Config, text_hidden: int) -> int:
    hidden = read_int(config, "hidden_size", default=1152)
    width = read_int(config, "intermediate_size", default=4304)
    depth = _layers(config, "depth", default=27)
    patches = _pixels(config, patch=16) * read_int(config, "temporal_patch_size", default=2)
    positions = read_int(config, "num_position_embeddings", default=2304)
    merger = _merger(config, hidden, read_int(config, "out_hidden_size", default=text_hidden))
    merged = hidden * read_int(config, "spatial_merge_size", default=2) ** 2
    stacked = len(read_int_list(config, "deepstack_visual_indexes"))
    return (
        _dense(patches, hidden)
        + positions * hidden
        + depth * _encoder_layer(hidden, width)
        + 2 * hidden
        + merger
        + stacked * (2 * merged + merger)
    )


def _merger(config: Config, hidden: int, outputs: int) -> int:
    merged = hidden * read_int(config, "spatial_merge_size", default=2) ** 2
    return _dense(merged, merged) + _dense(merged, outputs)


def _gemma4(config: Config, wrapper: Config, text_hidden: int) -> int:
    hidden = read_int(config, "hidden_size", default=768)
    width = read_int(config, "intermediate_size", default=3072)
    head = read_int(config, "head_dim", default=64)
    heads = read_int(config, "num_attention_heads", default=12)
    kv_heads = read_int(config, "num_key_value_heads", default=heads)
    attention = 2 * hidden * head * (heads + kv_heads) + 2 * head
    layer = attention + 3 * hidden * width + 4 * hidden
    positions = 2 * read_int(config, "position_embedding_size", default=10240)
    embedding = (_pixels(config, patch=16) + positions) * hidden
    depth = _layers(config, "num_hidden_layers", default=16)
    return embedding + depth * layer + hidden * text_hidden


def _llama4(config: Config, wrapper: Config, text_hidden: int) -> int:
    hidden = read_int(config, "hidden_size", default=768)
    width = read_int(config, "intermediate_size", default=5632)
    depth = _layers(config, "num_hidden_layers", default=34)
    rows = _patches(config, image=448, patch=14) + 1
    embedding = _pixels(config, patch=14) * hidden + hidden + rows * hidden
    inner = read_int(config, "projector_input_dim", default=4096)
    outer = read_int(config, "projector_output_dim", default=4096)
    adapter = width * inner + outer * outer
    projector = read_int(config, "vision_output_dim", default=7680) * text_hidden
    layers = depth * _encoder_layer(hidden, width)
    return embedding + layers + 4 * hidden + adapter + projector


def _moonvit(config: Config, wrapper: Config, text_hidden: int) -> int:
    hidden = read_int(config, "hidden_size", default=1152)
    width = read_int(config, "intermediate_size", default=4304)
    depth = _layers(config, "num_hidden_layers", default=27)
    side = read_int(config, "init_pos_emb_height", default=64)
    positions = side * read_int(config, "init_pos_emb_width", default=64)
    embedding = _dense(_pixels(config, patch=14), hidden) + positions * hidden
    projector = 2 * hidden + _dense(4 * hidden, 4 * hidden) + _dense(4 * hidden, text_hidden)
    return embedding + depth * _encoder_layer(hidden, width) + 2 * hidden + projector


def _omni_audio(config: Config, wrapper: Config, text_hidden: int) -> int:
    """Three strided convolutions, a Whisper-like encoder and two projections."""
    width = read_int(config, "d_model", default=1280)
    channels = read_int(config, "downsample_hidden_size", default=480)
    bins = read_int(config, "num_mel_bins", default=128)
    convolutions = 10 * channels + 2 * (9 * channels + 1) * channels
    rows = (((bins + 1) // 2 + 1) // 2 + 1) // 2
    layers = _layers(config, "encoder_layers", "num_hidden_layers", default=32)
    layer = _encoder_layer(width, read_int(config, "encoder_ffn_dim", default=5120))
    outputs = read_int(config, "output_dim", default=text_hidden)
    projections = channels * rows * width + _dense(width, width) + _dense(width, outputs)
    return convolutions + layers * layer + 2 * width + projections


_Counter = Callable[[Config, Config, int], int]
_TOWERS: Mapping[str, _Counter] = MappingProxyType(
    {
        "siglip_vision_model": _siglip,
        "clip_vision_model": _clip,
        "pixtral": _pixtral,
        "qwen2_vl": _qwen2_vl,
        "qwen2_vl_vision": _qwen2_vl,
        "qwen2_5_vl": _qwen2_5_vl,
        "qwen2_5_vl_vision": _qwen2_5_vl,
        "qwen3_vl": _qwen3_vl,
        "qwen3_vl_vision": _qwen3_vl,
        "qwen3_vl_moe": _qwen3_vl,
        "qwen3_vl_moe_vision": _qwen3_vl,
        "qwen3_5": _qwen3_vl,
        "qwen3_5_vision": _qwen3_vl,
        "qwen3_5_moe": _qwen3_vl,
        "qwen3_5_moe_vision": _qwen3_vl,
        "qwen3_omni_moe_vision_encoder": _qwen3_vl,
        "qwen3_omni_moe_audio_encoder": _omni_audio,
        "gemma4_vision": _gemma4,
        "llama4_vision_model": _llama4,
        "moonvit": _moonvit,
    }
)
