"""Kernels for attention, its cache and quantized weights, each beside a plain-torch reference."""

from pagefleet_kernels.backend import KernelBackend, open_backend
from pagefleet_kernels.errors import ArgumentError
from pagefleet_kernels.fp8_blocks import Fp8BlockWeight
from pagefleet_kernels.fp8_matmul import Fp8Weight
from pagefleet_kernels.int4_matmul import Int4Weight, repack_awq, repack_gptq
from pagefleet_kernels.kv_layout import KV_MODES, KVLayout, LayerKVShape
from pagefleet_kernels.kv_pool import KVPool, LayerCache
from pagefleet_kernels.metadata import AttentionMetadata, DeviceLengths
from pagefleet_kernels.paged_attention import PagedAttention
from pagefleet_kernels.quantized_matmul import (
    QuantizedWeight,
    quantized_matmul,
    warm_up_quantized_matmul,
)
from pagefleet_kernels.store_kv import KVWriter, store_kv

__all__ = [
    "KV_MODES",
    "ArgumentError",
    "AttentionMetadata",
    "DeviceLengths",
    "Fp8BlockWeight",
    "Fp8Weight",
    "Int4Weight",
    "KVLayout",
    "KVPool",
    "KVWriter",
    "KernelBackend",
    "LayerCache",
    "LayerKVShape",
    "PagedAttention",
    "QuantizedWeight",
    "open_backend",
    "quantized_matmul",
    "repack_awq",
    "repack_gptq",
    "store_kv",
    "warm_up_quantized_matmul",
]
