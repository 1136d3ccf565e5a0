"""Bytes per element of weights, and bytes per row of a KV cache with its scales."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from pagefleet_memory.errors import LimitError

COMPUTE_DTYPES = ("bfloat16", "float16", "float32")
QUANTIZED_KV_DTYPES = ("fp8_e4m3", "int8", "int8k_int4v", "int4")
KV_CACHE_DTYPES = ("auto", *COMPUTE_DTYPES, *QUANTIZED_KV_DTYPES)

RowPart = Literal["key", "value"]

_COMPUTE_BYTES: Mapping[str, int] = MappingProxyType({"bfloat16": 2, "float16": 2, "float32": 4})
_SCALE_BYTES = 4  # one fp32 scale per K or V row of a head
_GROUP_BYTES = 4  # an fp16 scale and an fp16 minimum per int4 group
_LARGEST_GROUP = 32

# The names that safetensors headers use for the floating types an engine casts when it loads.
SAFETENSORS_FLOATS: Mapping[str, str] = MappingProxyType(
    {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
)


def dtype_bytes(dtype: str, *, field: str = "dtype") -> int:
    """Bytes of one element of a compute dtype."""
    size = _COMPUTE_BYTES.get(dtype) if isinstance(dtype, str) else None
    if size is None:
        raise LimitError(
            f"unknown dtype {dtype!r}", field=field, value=dtype, hint=_one_of(COMPUTE_DTYPES)
        )
    return size


def kv_row_bytes(width: int, kv_dtype: str, *, part: RowPart = "key") -> int:
    """Bytes of one K or V row of one head: `width` codes, packed where 4-bit, and their scales."""
    if width == 0:
        return 0
    if kv_dtype == "int4" or (kv_dtype == "int8k_int4v" and part == "value"):
        return -(-width // 2) + _GROUP_BYTES * (width // int4_group(width))
    if kv_dtype in QUANTIZED_KV_DTYPES:
        return width + _SCALE_BYTES
    return width * dtype_bytes(kv_dtype, field="kv_cache_dtype")


def int4_group(width: int) -> int:
    """Elements that share an int4 scale: the largest power of two up to 32 that divides a row."""
    return min(_LARGEST_GROUP, width & -width)


def resolve_kv_dtype(kv_dtype: str, dtype: str) -> str:
    """The concrete KV dtype: `auto` follows the compute dtype."""
    if kv_dtype not in KV_CACHE_DTYPES:
        raise LimitError(
            f"unknown KV cache dtype {kv_dtype!r}",
            field="kv_cache_dtype",
            value=kv_dtype,
            hint=_one_of(KV_CACHE_DTYPES),
        )
    return dtype if kv_dtype == "auto" else kv_dtype


def _one_of(names: tuple[str, ...]) -> str:
    return "use one of " + ", ".join(names)
