"""Bytes per element of weights, and bytes per row of a KV cache with its scales."""

from collections.abc import Mapping
from types import MappingProxyType

from pagefleet_memory.errors import LimitError

COMPUTE_DTYPES = ("bfloat16", "float16", "float32")
KV_CACHE_DTYPES = ("auto", *COMPUTE_DTYPES, "fp8_e4m3", "int8")

_COMPUTE_BYTES: Mapping[str, int] = MappingProxyType({"bfloat16": 2, "float16": 2, "float32": 4})
_SCALE_BYTES = 4  # one fp32 scale per K or V row of a head

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


def kv_row_bytes(width: int, kv_dtype: str) -> int:
    """Bytes of one K or V row of one head: `width` elements and, for int8, their scale."""
    if kv_dtype == "fp8_e4m3":
        return width
    if kv_dtype == "int8":
        return width + _SCALE_BYTES if width else 0
    return width * dtype_bytes(kv_dtype, field="kv_cache_dtype")


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
