"""The decoder layers of a config.json: what each one caches and holds, layer by layer."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from pagefleet_memory.attention_weights import delta_net, head_attention, latent_attention
from pagefleet_memory.config_fields import Config
from pagefleet_memory.decoder_sizes import DecoderSizes, global_sizes
from pagefleet_memory.family import Family
from pagefleet_memory.layer_pattern import LayerRole, layer_roles
from pagefleet_memory.layers import AttentionShape, LayerKind, LayerWeights, StateShape
from pagefleet_memory.matrices import Matrix, vector
from pagefleet_memory.mlp_weights import dense_mlp, routed_mlp

# For a layer and one of its matrices, the packing; empty where it stays in plain floats.
PackingOf = Callable[[int, Matrix], str]


@dataclass(frozen=True, slots=True)
class Decoder:
    """The distinct kinds of layers, and for each layer the index of its kind."""

    kinds: tuple[LayerKind, ...]
    pattern: tuple[int, ...]


def decoder_layers(
    config: Config, family: Family, sizes: DecoderSizes, packing_of: PackingOf
) -> Decoder:
    """Every layer of the decoder, equal ones shared."""
    kinds: dict[LayerKind, int] = {}
    pattern: list[int] = []
    built: dict[LayerRole, LayerKind] = {}
    packed: dict[tuple[LayerRole, tuple[str, ...]], LayerKind] = {}
    for layer, role in enumerate(layer_roles(config, family, sizes)):
        if role not in built:
            built[role] = _layer_kind(config, family, sizes, role)
        plain = built[role]
        packings = tuple(packing_of(layer, matrix) for matrix in plain.weights.matrices)
        if (role, packings) not in packed:
            packed[role, packings] = _pack(plain, packings)
        pattern.append(kinds.setdefault(packed[role, packings], len(kinds)))
    return Decoder(tuple(kinds), tuple(pattern))


def _layer_kind(config: Config, family: Family, sizes: DecoderSizes, role: LayerRole) -> LayerKind:
    shape, state, attention = _attention(config, family, sizes, role)
    sparse = role.sparse and sizes.num_experts > 0
    mlp = routed_mlp(family, sizes) if sparse else dense_mlp(config, family, sizes)
    norm_width = sizes.hidden_size * (2 if family.norm_has_bias else 1)
    norms = vector("norms", family.norms_per_layer * norm_width)
    return LayerKind(shape, LayerWeights((*attention, *mlp, norms)), state)


def _attention(
    config: Config, family: Family, sizes: DecoderSizes, role: LayerRole
) -> tuple[AttentionShape, StateShape | None, tuple[Matrix, ...]]:
    if role.linear:
        return delta_net(config, sizes)
    if family.attention == "mla":
        shape, matrices = latent_attention(
            config, family, sizes, window=role.window, indexer=role.indexer
        )
        return shape, None, matrices
    if role.window is None:
        sizes = global_sizes(config, sizes)
    shape, matrices = head_attention(config, family, sizes, window=role.window)
    return shape, None, matrices


def _pack(kind: LayerKind, packings: tuple[str, ...]) -> LayerKind:
    if not any(packings):
        return kind
    matrices = tuple(
        replace(matrix, packing=packing)
        for matrix, packing in zip(kind.weights.matrices, packings, strict=True)
    )
    return replace(kind, weights=LayerWeights(matrices))
