"""Attention and cache kernels, each beside a plain-torch reference of the same signature."""

from pagefleet_kernels.backend import AttentionBackend, open_backend
from pagefleet_kernels.errors import ArgumentError
from pagefleet_kernels.kv_layout import KV_MODES, KVLayout, LayerKVShape
from pagefleet_kernels.kv_pool import KVPool, LayerCache
from pagefleet_kernels.metadata import AttentionMetadata, DeviceLengths
from pagefleet_kernels.paged_attention import PagedAttention
from pagefleet_kernels.store_kv import KVWriter, store_kv

__all__ = [
    "KV_MODES",
    "ArgumentError",
    "AttentionBackend",
    "AttentionMetadata",
    "DeviceLengths",
    "KVLayout",
    "KVPool",
    "KVWriter",
    "LayerCache",
    "LayerKVShape",
    "PagedAttention",
    "open_backend",
    "store_kv",
]
