"""Bytes of weights on one rank of one pipeline stage."""

from pagefleet_memory.dtypes import dtype_bytes
from pagefleet_memory.layers import LayerKind
from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.parallelism import stage_bounds


def rank_weight_bytes(
    shape: ModelShape, dtype: str, *, tensor_parallel_size: int, stages: int, stage: int
) -> int:
    """Weights one rank holds: its share of the stage's layers, embedding and head."""
    start, end = stage_bounds(shape.num_layers, stages)[stage]
    pattern = shape.layer_pattern[start:end]
    layers = sum(
        pattern.count(index) * _layer_bytes(shape, kind, dtype, tensor_parallel_size)
        for index, kind in enumerate(shape.layer_kinds)
    )
    outside = _outside_parameters(shape, tensor_parallel_size, stages=stages, stage=stage)
    return _scaled_to_checkpoint(shape, dtype, layers) + outside * dtype_bytes(dtype)


def _layer_bytes(shape: ModelShape, kind: LayerKind, dtype: str, tp: int) -> int:
    weights, attention = kind.weights, kind.attention
    kv_local = attention.local_kv_heads(tp)
    kv = _ceil(weights.kv_heads * kv_local, attention.kv_heads)
    experts = _ceil(weights.experts, tp)
    dense = _ceil(weights.heads, tp) + kv + _ceil(weights.mlp, tp)
    size = dtype_bytes(dtype)
    if shape.quantization is None:
        return (dense + experts + weights.replicated) * size
    packed = experts if shape.quantization.experts_only else dense + experts
    plain = dense + experts + weights.replicated - packed
    return plain * size + _ceil(int(packed * shape.quantization.bits_per_weight), 8)


def _outside_parameters(shape: ModelShape, tp: int, *, stages: int, stage: int) -> int:
    """Embedding on the first stage, norm and head on the last; tied ones are on both."""
    first, last = stage == 0, stage == stages - 1
    embedding = _ceil(shape.embedding_parameters, tp)
    parameters = embedding if first else 0
    if last:
        parameters += shape.final_parameters + _ceil(shape.head_parameters, tp)
        parameters += embedding if shape.tie_word_embeddings and not first else 0
    return parameters


def _scaled_to_checkpoint(shape: ModelShape, dtype: str, layer_bytes: int) -> int:
    """Spread what the checkpoint's headers say over the layers in proportion to their shapes."""
    if shape.checkpoint is None:
        return layer_bytes
    outside = shape.embedding_parameters + shape.head_parameters + shape.final_parameters
    stored = max(0, shape.weight_bytes(dtype) - outside * dtype_bytes(dtype))
    counted = sum(_layer_bytes(shape, kind, dtype, 1) for kind in shape.layers)
    return _ceil(layer_bytes * stored, counted)


def _ceil(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
