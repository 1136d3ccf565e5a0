"""Rotary tables as a server of the `vllm` kind holds them: rows and width from a config.json.

Formulas: vLLM's rotary embedding layers; the sizes agree with logged weights (Gemma 3 with linear
scaling holds 0.5 GiB of them, Llama 4 Scout 2.5 GiB).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pagefleet_memory.config_fields import Config, read_int, read_mapping, read_number, read_str
from pagefleet_memory.decoder_sizes import DecoderSizes
from pagefleet_memory.family import Family

_VIDEO_FACTOR = 4  # multimodal rotary tables allow for longer video indices


@dataclass(frozen=True, slots=True)
class RopeTable:
    """Cosines and sines for `positions`, `width` numbers each."""

    positions: int
    width: int


def rope_tables(config: Config, sizes: DecoderSizes, family: Family) -> tuple[RopeTable, ...]:
    """Every distinct table of the model."""
    if family.learned_positions:
        return ()
    scaling = read_mapping(config, "rope_parameters") or read_mapping(config, "rope_scaling") or {}
    positions = read_int(config, "max_position_embeddings", default=2048)
    by_type = [scaling[name] for name in _LAYER_TYPES if isinstance(scaling.get(name), Mapping)]
    if by_type:
        return _tables_by_layer_type(config, sizes, positions, scaling)
    width = _rotary_width(config, sizes, scaling)
    table = RopeTable(_scaled_positions(config, scaling, positions), width)
    if config.get("rope_local_base_freq") is None:
        return (table,)
    return table, RopeTable(positions, width)


_LAYER_TYPES = ("full_attention", "sliding_attention")


def _tables_by_layer_type(
    config: Config, sizes: DecoderSizes, positions: int, scaling: Mapping[str, object]
) -> tuple[RopeTable, ...]:
    heads = {
        "full_attention": read_int(config, "global_head_dim", default=sizes.head_dim),
        "sliding_attention": sizes.head_dim,
    }
    tables = []
    for name in _LAYER_TYPES:
        section = read_mapping(scaling, name)
        if section is not None:
            rows = _scaled_positions(config, section, positions)
            # A partial rotation still spans the head: the other pairs turn by nothing.
            tables.append(RopeTable(rows, heads[name]))
    return tuple(tables)


def _rotary_width(config: Config, sizes: DecoderSizes, scaling: Mapping[str, object]) -> int:
    if sizes.qk_rope_head_dim:
        return sizes.qk_rope_head_dim
    stated = read_int(config, "rotary_dim", default=0, minimum=0)
    if stated:
        return stated
    share = read_number(scaling, "partial_rotary_factor", default=1.0)
    share = read_number(config, "partial_rotary_factor", default=share)
    return max(1, int(sizes.head_dim * share))


def _scaled_positions(config: Config, scaling: Mapping[str, object], positions: int) -> int:
    kind = read_str(scaling, "rope_type", default=read_str(scaling, "type", default="default"))
    factor = read_number(scaling, "factor", default=1.0)
    original = read_int(
        scaling,
        "original_max_position_embeddings",
        default=read_int(config, "original_max_position_embeddings", default=positions),
    )
    if kind == "linear":
        return int(positions * factor)
    if kind == "yarn":
        return int(original * factor)
    if kind == "longrope":
        return original + positions
    if scaling.get("mrope_section") is not None:
        return positions * _VIDEO_FACTOR
    return positions
