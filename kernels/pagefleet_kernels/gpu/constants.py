"""What a kernel is compiled for: the numbers that a layer's cache fixes."""

from dataclasses import dataclass

import torch

from pagefleet_kernels.gpu.launch import AttentionShape, power_of_two
from pagefleet_kernels.kv_layout import int4_group
from pagefleet_kernels.kv_pool import CachePart, LayerCache

FLOATS = ("bfloat16", "float16", "float32")
PAIRED = ("int8", "fp8_e4m3")
Constants = dict[str, int | float | bool | str | None]


@dataclass(frozen=True, slots=True, eq=False)
class Scales:
    """A part's scales as the kernels read them, four bytes each."""

    tensor: torch.Tensor | None
    head_stride: int
    slot_stride: int


def shape_of(query_heads: int, dtype: torch.dtype, cache: LayerCache) -> AttentionShape:
    return AttentionShape(
        num_heads=query_heads,
        num_kv_heads=cache.num_kv_heads,
        head_dim=cache.head_dim,
        v_head_dim=cache.v_head_dim,
        kv_mode=cache.mode,
        dtype=str(dtype).removeprefix("torch."),
    )


def scales_of(part: CachePart) -> Scales:
    """float32, or int32 that hold a float16 scale and a float16 minimum; strides 0 without."""
    if part.scales is None:
        return Scales(None, 0, 0)
    tensor = part.scales
    if part.row_format == "int4":
        tensor = tensor.view(torch.int32).squeeze(-1)
    return Scales(tensor, tensor.stride(1), tensor.stride(2))


def codes_of(part: CachePart, *, is_value: bool) -> torch.Tensor:
    """Codes as attention reads them: 8-bit values two at a time, 4-bit ones eight at a time."""
    if part.row_format == "int4":
        return part.codes.view(torch.int32)
    return part.codes.view(torch.int16) if is_value and part.row_format in PAIRED else part.codes


def record_stride(cache: LayerCache) -> int:
    """From one block to the next, in units of 16 bytes."""
    return cache.k_codes.stride(0) * cache.k_codes.element_size() // 16


def cache_constants(cache: LayerCache) -> Constants:
    """Widths, formats and strides; the same for writing and reading."""
    constants: Constants = {
        "KV_HEADS": cache.num_kv_heads,
        "BLOCK_SIZE": cache.block_size,
        "ROTATED": cache.is_rotated,
    }
    for name, part in (("K", cache.keys), ("V", cache.values)):
        scales = scales_of(part)
        codes = codes_of(part, is_value=name == "V")
        constants |= {
            f"{name}_WIDTH": part.width,
            f"{name}_FORMAT": part.row_format,
            f"{name}_UNITS": 16 // codes.element_size(),
            f"{name}_INT4_GROUP": int4_group(part.width),
            f"{name}_HEAD_STRIDE": codes.stride(1),
            f"{name}_SLOT_STRIDE": codes.stride(2),
            f"{name}_SCALE_HEAD_STRIDE": scales.head_stride,
            f"{name}_SCALE_SLOT_STRIDE": scales.slot_stride,
        }
    return constants


def attention_constants(cache: LayerCache, shape: AttentionShape) -> Constants:
    k_format, v_format = shape.formats
    return cache_constants(cache) | {
        "GROUP": shape.group,
        "K_PADDED": padded_width(k_format, shape.head_dim),
        "V_PADDED": power_of_two(shape.v_head_dim // (1 if v_format in FLOATS else 2)),
        "V_HALVES": 1 if v_format == "int4" else 2 if v_format in PAIRED else 0,
        "K_TYPE": product_type(k_format, shape.dtype),
        "V_TYPE": product_type(v_format, shape.dtype),
    }


def padded_width(row_format: str, width: int) -> int:
    """A row, or half a row of 4 bits, as a power of two."""
    return power_of_two(width // 2 if row_format == "int4" else width)


def product_type(row_format: str, dtype: str) -> str:
    """What products with stored numbers are computed in.

    8-bit codes become bfloat16 by a few logic instructions, float16 by slow conversions. 4-bit
    values are code x scale + minimum in float16, whose range their scale has already.
    """
    if dtype == "float32":
        return dtype
    return {"int8": "bfloat16", "fp8_e4m3": "float16", "int4": "float16"}.get(row_format, dtype)
