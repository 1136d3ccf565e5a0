"""Attention and cache kernels, each beside a plain-torch reference of the same signature."""

from pagefleet_kernels.metadata import AttentionMetadata
from pagefleet_kernels.paged_attention import PagedAttention
from pagefleet_kernels.store_kv import store_kv

__all__ = ["AttentionMetadata", "PagedAttention", "store_kv"]
