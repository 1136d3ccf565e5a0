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
    layers = _layers_bytes(shape, shape.layer_pattern[start:end], dtype, tensor_parallel_size)
    outside = _outside_bytes(shape, dtype, tensor_parallel_size, stages=stages, stage=stage)
    return _scaled_to_checkpoint(shape, dtype, layers) + outside


def _layers_bytes(shape: ModelShape, pattern: tuple[int, ...], dtype: str, tp: int) -> int:
    """Bytes of these layers on one rank."""
    return sum(
        pattern.count(index) * _layer_bytes(kind, dtype, tp)
        for index, kind in enumerate(shape.layer_kinds)
    )


def _layer_bytes(kind: LayerKind, dtype: str, tp: int) -> int:
    attention, size = kind.attention, dtype_bytes(dtype)
    heads, local = max(1, attention.kv_heads), attention.local_kv_heads(tp)
    total = 0
    for matrix in kind.weights.matrices:
        rows, columns = matrix.plain_shape(tp, kv_heads=heads, kv_local=local)
        total += matrix.copies * matrix.bytes_of(rows, columns, size)
    return total


def _outside_bytes(shape: ModelShape, dtype: str, tp: int, *, stages: int, stage: int) -> int:
    """Embedding and towers on the first stage, norm and head on the last; tied ones on both."""
    first, last = stage == 0, stage == stages - 1
    size = dtype_bytes(dtype)
    embedding = _ceil(shape.embedding_parameters, tp) * size
    total = embedding if first else 0
    if first and shape.checkpoint is None:
        total += shape.tower_parameters * size
    if last:
        total += shape.final_parameters * size
        total += shape.head_bytes(_ceil(shape.head_parameters, tp), size)
        total += embedding if shape.tie_word_embeddings and not first else 0
    return total


def _scaled_to_checkpoint(shape: ModelShape, dtype: str, layers: int) -> int:
    """Spread what the checkpoint's headers say over the layers in proportion to their shapes."""
    if shape.checkpoint is None:
        return layers
    outside = shape.embedding_parameters + shape.head_parameters + shape.final_parameters
    stored = max(0, shape.weight_bytes(dtype) - outside * dtype_bytes(dtype))
    counted = _layers_bytes(shape, shape.layer_pattern, dtype, 1)
    return _ceil(layers * stored, counted)


def _ceil(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
