"""What pagefleet's engine can split over ranks, so that no plan asks it for more.

The engine follows the plans that Transformers models bring for tensor and pipeline parallelism;
a test compares these lists with what it does to every family.
"""

from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.parallelism import tensor_parallel_problem

TENSOR_FAMILIES = frozenset(
    {
        "cohere",
        "cohere2",
        "gemma",
        "gemma2",
        "gemma3_text",
        "glm4_moe",
        "granite",
        "llama",
        "mistral",
        "mixtral",
        "phi",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "smollm3",
        "starcoder2",
    }
)
STAGE_FAMILIES = (TENSOR_FAMILIES - {"phi"}) | {
    "gemma4_text",
    "glm",
    "glm4",
    "gpt_oss",
    "minimax_m2",
    "olmo2",
    "phi3",
}


def whole_tensors(shape: ModelShape) -> str | None:
    """Why an engine keeps the model's matrices whole; None where it can split them."""
    if shape.model_type in TENSOR_FAMILIES:
        return None
    return f"engines of this version cannot split the matrices of {shape.model_type}"


def whole_stack(shape: ModelShape) -> str | None:
    """Why an engine keeps the model's layers together; None where it can cut them in stages."""
    if shape.model_type in STAGE_FAMILIES:
        return None
    return f"engines of this version cannot cut {shape.model_type} into stages"


def tensor_problem(shape: ModelShape, tensor_parallel_size: int) -> str | None:
    """Why an engine cannot run the model over this many ranks; None where it can."""
    unsplit = whole_tensors(shape) if tensor_parallel_size > 1 else None
    return unsplit or tensor_parallel_problem(shape, tensor_parallel_size)


def stage_problem(shape: ModelShape, pipeline_parallel_size: int) -> str | None:
    """Why an engine cannot run the model in this many stages; None where it can."""
    uncut = whole_stack(shape) if pipeline_parallel_size > 1 else None
    if uncut:
        return uncut
    if pipeline_parallel_size > shape.num_layers:
        return f"the model has {shape.num_layers} layers"
    return None


def tensor_sizes(shape: ModelShape, largest: int) -> tuple[int, ...]:
    """All TP sizes up to `largest` that an engine can run the model with, ascending."""
    sizes = range(1, min(largest, shape.num_attention_heads) + 1)
    return tuple(size for size in sizes if tensor_problem(shape, size) is None)
