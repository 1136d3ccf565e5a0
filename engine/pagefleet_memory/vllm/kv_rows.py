"""Bytes of one K or V row in vLLM's cache formats, under its names."""

from pagefleet_memory.dtypes import COMPUTE_DTYPES, dtype_bytes
from pagefleet_memory.errors import LimitError

_SCALE = 4  # an fp32 scale per token and head
_FP8 = ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla")
_PER_TOKEN = ("int8_per_token_head", "fp8_per_token_head")
KV_DTYPES = ("auto", *COMPUTE_DTYPES, *_FP8, *_PER_TOKEN, "nvfp4")


def concrete_kv_dtype(kv_dtype: str, dtype: str) -> str:
    """The format of a cache: `auto` follows the compute dtype, all fp8 names are one format."""
    if kv_dtype not in KV_DTYPES:
        raise LimitError(
            f"unknown KV cache dtype {kv_dtype!r}",
            field="kv_cache_dtype",
            value=kv_dtype,
            hint="use one of " + ", ".join(KV_DTYPES),
        )
    if kv_dtype == "auto":
        return dtype
    return "fp8" if kv_dtype in _FP8 else kv_dtype


def row_bytes(width: int, kv_dtype: str) -> int:
    """Bytes of `width` numbers in a concrete format; fp8 has one scale for a whole layer."""
    if kv_dtype == "fp8":
        return width
    if kv_dtype in _PER_TOKEN:
        return width + _SCALE
    if kv_dtype == "nvfp4":  # four bits, and a byte of scale per 16
        return width // 2 + -(-width // 16)
    return width * dtype_bytes(kv_dtype, field="kv_cache_dtype")
