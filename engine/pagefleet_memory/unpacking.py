"""What a step holds of a quantized weight in plain numbers, beside the weight and activations.

The engine's linear layers multiply by packed weights with a kernel, except in steps of many tokens:
then a library multiplies by the whole weight in the computation's type. Where there is no kernel,
some outputs at a time are unpacked in float32 (pagefleet_kernels, unpacking.py; tests compare).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pagefleet_memory.accelerator import Accelerator
from pagefleet_memory.dtypes import dtype_bytes
from pagefleet_memory.layers import LayerKind
from pagefleet_memory.limits import EngineLimits
from pagefleet_memory.matrices import Matrix
from pagefleet_memory.model_shape import ModelShape

_LARGE_BATCH = 256  # rows
_UNPACKED_OUTPUTS = 1024
_EXACT_BYTES = 4
_FP8_UNIT = 16  # inputs that the fp8 kernel reads at a time
_FP8_CAPABILITY = 8.9
# Matrices that a model computes as one where others keep two or three.
_JOINED = {
    "phi3": ("qkv_proj", "gate_up_proj"),
    "glm": ("gate_up_proj",),
    "glm4": ("gate_up_proj",),
    "chatglm": ("gate_up_proj",),
}


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """A quantized linear layer of the engine, as one rank holds it."""

    packing: str
    outputs: int
    inputs: int


def unpacked_bytes(
    shape: ModelShape, accelerator: Accelerator, limits: EngineLimits, *, stage: int
) -> int:
    """The most that a product with a quantized weight holds; 0 without such weights."""
    tokens = limits.max_num_batched_tokens
    sizes = [
        _product_bytes(each, accelerator, limits.dtype, num_rows=tokens)
        for each in layer_linears(shape, limits.tensor_parallel_size)
    ]
    if shape.head_packing and stage == limits.pipeline_parallel_size - 1:
        head = PackedLinear(shape.head_packing, shape.vocab_size, shape.hidden_size)
        rows = min(limits.max_num_seqs, tokens)
        sizes.append(_product_bytes(head, accelerator, limits.dtype, num_rows=rows))
    return max(sizes, default=0)


def layer_linears(shape: ModelShape, tensor_parallel_size: int) -> Iterator[PackedLinear]:
    """The quantized linear layers of each kind of layer; experts are none that an engine reads."""
    joined = _JOINED.get(shape.model_type, ())
    for kind in shape.layer_kinds:
        for matrix in kind.weights.matrices:
            if matrix.packing and ".experts." not in matrix.name:
                yield _largest_part(matrix, kind, tensor_parallel_size, joined)


def _largest_part(
    matrix: Matrix, kind: LayerKind, tp: int, joined: tuple[str, ...]
) -> PackedLinear:
    """Of queries, keys and values the queries, and one of gate and up."""
    attention = kind.attention
    heads, local = max(1, attention.kv_heads), attention.local_kv_heads(tp)
    rows, columns = matrix.plain_shape(tp, kv_heads=heads, kv_local=local)
    if not matrix.name.endswith(joined or ("nothing",)):
        if matrix.kv_rows:
            rows -= -(-matrix.kv_rows * local // heads)
        elif matrix.name.endswith("gate_up_proj"):
            rows = -(-rows // 2)
    return PackedLinear(matrix.packing, rows, columns)


def has_kernel(linear: PackedLinear, accelerator: Accelerator, dtype: str) -> bool:
    """Whether the engine multiplies packed numbers; of a card that is not known, assume it."""
    if accelerator.kind == "CPU" or dtype == "float32" or linear.packing == "fp8-block":
        return False
    if linear.packing == "fp8":
        capability = accelerator.compute_capability
        return linear.inputs % _FP8_UNIT == 0 and (
            capability is None or capability >= _FP8_CAPABILITY
        )
    return True


def _product_bytes(
    linear: PackedLinear, accelerator: Accelerator, dtype: str, *, num_rows: int
) -> int:
    itemsize = dtype_bytes(dtype)
    if has_kernel(linear, accelerator, dtype):
        return linear.outputs * linear.inputs * itemsize if num_rows >= _LARGE_BATCH else 0
    outputs = min(linear.outputs, _UNPACKED_OUTPUTS)
    elements = outputs * linear.inputs
    exact, rounded = elements * _EXACT_BYTES, elements * itemsize if itemsize < 4 else 0
    product = num_rows * outputs * itemsize
    return max(exact + max(rounded, elements // 2), (rounded or exact) + product)
