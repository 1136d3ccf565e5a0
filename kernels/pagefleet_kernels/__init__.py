"""Attention and cache kernels, each beside a plain-torch reference of the same signature."""

from pagefleet_kernels.metadata import AttentionMetadata
from pagefleet_kernels.paged_attention import PagedAttention
from pagefleet_kernels.quantized_cache import KVCache, allocate_cache, row_bytes
from pagefleet_kernels.store_kv import store_kv

__all__ = [
    "AttentionMetadata",
    "KVCache",
    "PagedAttention",
    "allocate_cache",
    "row_bytes",
    "store_kv",
]
