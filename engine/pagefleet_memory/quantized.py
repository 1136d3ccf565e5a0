"""A model as it would be with quantized weights: what another checkpoint of it would hold."""

from dataclasses import replace

from pagefleet_memory.layers import LayerKind, LayerWeights
from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.quantization import PackingGroup, Quantization, QuantizationRules


def as_quantized(shape: ModelShape, quantization: Quantization, packing: str) -> ModelShape:
    """Every projection packed in one way; embedding, head, norms and routers stay as they are."""
    rules = QuantizationRules(quantization, (PackingGroup(packing),))
    kinds = tuple(_packed(kind, rules) for kind in shape.layer_kinds)
    return replace(shape, layer_kinds=kinds, quantization=quantization, checkpoint=None)


def _packed(kind: LayerKind, rules: QuantizationRules) -> LayerKind:
    matrices = tuple(
        replace(matrix, packing=rules.packing_of(0, matrix)) for matrix in kind.weights.matrices
    )
    return replace(kind, weights=LayerWeights(matrices))
