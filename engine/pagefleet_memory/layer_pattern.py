"""Which layers of a decoder slide, keep a state, route to experts or choose their tokens."""

from dataclasses import dataclass

from pagefleet_memory.config_fields import (
    Config,
    read_bool,
    read_int,
    read_int_list,
    read_str_list,
)
from pagefleet_memory.decoder_sizes import DecoderSizes
from pagefleet_memory.errors import ShapeError
from pagefleet_memory.family import Family

_WINDOWED = ("sliding_attention", "chunked_attention")
_FULL = ("full_attention", "deepseek_sparse_attention", "indexed_attention")


@dataclass(frozen=True, slots=True)
class LayerRole:
    """What sets one layer apart from the others of its model."""

    window: int | None
    sparse: bool  # routed experts in place of the dense MLP
    linear: bool = False  # a state in place of cached rows
    indexer: bool = False


def layer_roles(config: Config, family: Family, sizes: DecoderSizes) -> list[LayerRole]:
    """The role of every layer, in order."""
    count = sizes.num_layers
    types = _layer_types(config, count)
    linear = _linear_layers(family, types, count)
    windows = _layer_windows(config, family, types, count)
    sparse = _sparse_layers(config, family, count)
    indexers = _indexers(config, family, count)
    return [LayerRole(*each) for each in zip(windows, sparse, linear, indexers, strict=True)]


def _layer_types(config: Config, count: int) -> tuple[str, ...]:
    """The stated kind of every layer; empty where the file does not say."""
    types = read_str_list(config, "layer_types")
    if types and len(types) != count:
        raise ShapeError(
            f"{len(types)} entries for {count} layers", field="layer_types", value=types
        )
    for name in types:
        if name not in (*_FULL, *_WINDOWED, "linear_attention"):
            raise ShapeError(
                f"has {name!r} layers, which are not supported", field="model_type", value=name
            )
    return types


def _linear_layers(family: Family, types: tuple[str, ...], count: int) -> list[bool]:
    interval = family.full_attention_interval
    if not interval:
        if "linear_attention" in types:
            raise ShapeError(
                "keeps recurrent state in a form that is not supported",
                field="model_type",
                hint="use a model whose layers all attend",
            )
        return [False] * count
    if types:
        return [name == "linear_attention" for name in types]
    return [(layer + 1) % interval != 0 for layer in range(count)]


def _layer_windows(
    config: Config, family: Family, types: tuple[str, ...], count: int
) -> list[int | None]:
    key = "attention_chunk_size" if family.window == "chunks" else "sliding_window"
    default = dict(family.config_defaults).get(key, 0)
    window = read_int(config, key, default=default, minimum=0)
    if not window or not _uses_window(config, family):
        return [None] * count
    if types:
        return [window if name in _WINDOWED else None for name in types]
    return [window if _slides(config, family, layer) else None for layer in range(count)]


def _uses_window(config: Config, family: Family) -> bool:
    if family.window in ("late_layers", "optional"):
        return read_bool(config, "use_sliding_window", default=False)
    return family.window != "none"


def _slides(config: Config, family: Family, layer: int) -> bool:
    if family.window == "alternate":
        return layer % 2 == 0
    if family.window == "every_sixth":
        return (layer + 1) % read_int(config, "sliding_window_pattern", default=6) != 0
    if family.window in ("every_fourth", "chunks"):
        return (layer + 1) % read_int(config, "sliding_window_pattern", default=4) != 0
    if family.window == "late_layers":
        return layer >= read_int(config, "max_window_layers", default=28, minimum=0)
    return True


def _sparse_layers(config: Config, family: Family, count: int) -> list[bool]:
    """Which layers hold routed experts in place of the dense MLP."""
    if family.moe in ("none", "deepseek"):
        dense = read_int(config, "first_k_dense_replace", default=0, minimum=0)
        return [family.moe == "deepseek" and layer >= dense for layer in range(count)]
    key = "interleave_moe_layer_step" if family.moe == "llama4" else "decoder_sparse_step"
    step = read_int(config, key, default=1)
    dense_layers = set(read_int_list(config, "mlp_only_layers"))
    return [layer not in dense_layers and (layer + 1) % step == 0 for layer in range(count)]


def _indexers(config: Config, family: Family, count: int) -> list[bool]:
    """Which sparse-attention layers have their own indexer; the others reuse the one before."""
    if not family.sparse_indexer:
        return [False] * count
    types = read_str_list(config, "indexer_types")
    if types and len(types) != count:
        raise ShapeError(
            f"{len(types)} entries for {count} layers", field="indexer_types", value=types
        )
    if types:
        return [name == "full" for name in types]
    every = read_int(config, "index_topk_freq", default=1)
    offset = read_int(config, "index_skip_topk_offset", default=2, minimum=0)
    return [max(layer - offset + 1, 0) % every == 0 for layer in range(count)]
