"""What a kernel is compiled for: the numbers that a layer's cache fixes."""

from dataclasses import dataclass

import torch

from pagefleet_kernels.gpu.launch import AttentionShape, power_of_two, store_heads
from pagefleet_kernels.kv_layout import int4_group
from pagefleet_kernels.kv_pool import CachePart, LayerCache

Constants = dict[str, int | float | bool | str | None]

HALVES = {"int4": 1, "int8": 2, "fp8_e4m3": 2}  # lower and upper half; even and odd columns
WORDS = {"int4": torch.int32, "int8": torch.int32, "fp8_e4m3": torch.int16}
LIFT = 8  # weights x scale of float16 values: above a largest value of 30000 they would overflow


@dataclass(frozen=True, slots=True, eq=False)
class Scales:
    """A part's scales as the kernels read them, four bytes each."""

    tensor: torch.Tensor | None
    head_stride: int
    slot_stride: int


@dataclass(frozen=True, slots=True, eq=False)
class Views:
    """The codes in the words that a kernel reads or writes."""

    keys: torch.Tensor
    values: torch.Tensor


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


def read_views(cache: LayerCache) -> Views:
    """Codes in the words that attention reads."""
    return Views(
        cache.k_codes.view(WORDS.get(cache.keys.row_format, cache.k_codes.dtype)),
        cache.v_codes.view(WORDS.get(cache.values.row_format, cache.v_codes.dtype)),
    )


def record_stride(cache: LayerCache) -> int:
    """From one block to the next, in units of 16 bytes."""
    return cache.k_codes.stride(0) * cache.k_codes.element_size() // 16


def cache_constants(cache: LayerCache, views: Views) -> Constants:
    """Widths, formats and strides of what a kernel reads or writes."""
    constants: Constants = {
        "KV_HEADS": cache.num_kv_heads,
        "BLOCK_SIZE": cache.block_size,
        "ROTATED": cache.is_rotated,
    }
    for name, part, codes in (("K", cache.keys, views.keys), ("V", cache.values, views.values)):
        scales = scales_of(part)
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
    k_halves, v_halves = HALVES.get(k_format, 0), HALVES.get(v_format, 0)
    return cache_constants(cache, read_views(cache)) | {
        "GROUP": shape.group,
        "K_PADDED": power_of_two(shape.head_dim // (2 if k_halves else 1)),
        "V_PADDED": power_of_two(shape.v_head_dim // (2 if v_halves else 1)),
        "K_HALVES": k_halves,
        "V_HALVES": v_halves,
        "LIFT": LIFT if v_format in ("int8", "fp8_e4m3") else 0,
        "K_TYPE": product_type(k_format, shape.dtype),
        "V_TYPE": product_type(v_format, shape.dtype),
    }


def store_constants(
    cache: LayerCache, *, num_heads: int, rotary_dim: int, is_interleaved: bool
) -> Constants:
    return cache_constants(cache, Views(cache.k_codes, cache.v_codes)) | {
        "NUM_HEADS": num_heads,
        "K_PADDED": power_of_two(cache.head_dim),
        "V_PADDED": power_of_two(cache.v_head_dim),
        "K_HEADS": store_heads(max(num_heads, cache.num_kv_heads), cache.head_dim),
        "V_HEADS": store_heads(cache.num_kv_heads, cache.v_head_dim),
        "ROTARY": rotary_dim,
        "INTERLEAVED": is_interleaved,
    }


def product_type(row_format: str, dtype: str) -> str:
    """What products with stored numbers are computed in.

    Stored codes become float16 without a conversion, and exactly; so does a 4-bit value, whose
    scale has float16's range.
    """
    if dtype == "float32" or row_format in ("bfloat16", "float16", "float32"):
        return dtype
    return "float16"
