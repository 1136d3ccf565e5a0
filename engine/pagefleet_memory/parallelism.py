"""How a model splits: which TP and PP sizes are valid, and which layers a stage holds."""

from pagefleet_memory.errors import LimitError
from pagefleet_memory.model_shape import ModelShape

_VOCAB_PADDING = 64


def layers_per_stage(num_layers: int, pipeline_parallel_size: int) -> tuple[int, ...]:
    """Layers of each stage; a remainder goes to middle stages, which hold no vocabulary."""
    if not 1 <= pipeline_parallel_size <= num_layers:
        raise LimitError(
            f"{pipeline_parallel_size} stages for {num_layers} layers",
            field="pipeline_parallel_size",
            value=pipeline_parallel_size,
            hint=f"use 1..{num_layers}",
        )
    base, extra = divmod(num_layers, pipeline_parallel_size)
    counts = [base] * pipeline_parallel_size
    for index in range(extra):
        counts[-(2 + index) % pipeline_parallel_size] += 1
    return tuple(counts)


def stage_bounds(num_layers: int, pipeline_parallel_size: int) -> tuple[tuple[int, int], ...]:
    """The half-open range of layers of each stage."""
    start = 0
    bounds = []
    for count in layers_per_stage(num_layers, pipeline_parallel_size):
        bounds.append((start, start + count))
        start += count
    return tuple(bounds)


def tensor_parallel_problem(shape: ModelShape, tensor_parallel_size: int) -> str | None:
    """Why the model cannot be split over this many ranks; None where it can."""
    tp = tensor_parallel_size
    if tp == 1:
        return None
    if shape.num_attention_heads % tp:
        return f"{shape.num_attention_heads} attention heads do not divide by {tp}"
    kv_heads = shape.num_key_value_heads
    if not shape.is_mla and kv_heads % tp and tp % kv_heads:
        return f"{kv_heads} key-value heads neither divide by {tp} nor into it"
    padded = -(-shape.vocab_size // _VOCAB_PADDING) * _VOCAB_PADDING
    if padded % tp:
        return f"the vocabulary, padded to {padded}, does not divide by {tp}"
    for name, width in (*_attention_widths(shape), *_mlp_widths(shape)):
        if width % tp:
            return f"{name} {width} does not divide by {tp}"
        problem = _group_problem(shape, name, width // tp)
        if problem:
            return problem
    return None


def _attention_widths(shape: ModelShape) -> tuple[tuple[str, int], ...]:
    """The inputs of the output projection."""
    return (("the attention's width", shape.num_attention_heads * shape.v_head_dim),)


def _mlp_widths(shape: ModelShape) -> tuple[tuple[str, int], ...]:
    """The widths that tensor parallelism splits in the MLPs that the layers have."""
    dense = any(kind.weights.mlp for kind in shape.layer_kinds)
    widths: tuple[tuple[str, int], ...] = (
        (("intermediate_size", shape.intermediate_size),) if dense else ()
    )
    if shape.num_experts:
        widths += (("moe_intermediate_size", shape.moe_intermediate_size),)
    return widths


def _group_problem(shape: ModelShape, name: str, local_width: int) -> str | None:
    quantization = shape.quantization
    if quantization is None:
        return None
    group = quantization.block_size or quantization.group_size
    if quantization.experts_only and name != "moe_intermediate_size":
        return None
    if group and local_width % group:
        return f"{name} per rank, {local_width}, does not divide by the {group} of a scale"
    return None
