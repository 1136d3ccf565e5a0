"""Layers' caches of one block, from which kernels learn widths, formats and strides."""

import torch

from bench.aot_harness.variant import ARCHES
from pagefleet_kernels.gpu.checks import FP8_CAPABILITY, HEAD_DIMS
from pagefleet_kernels.kv_layout import KVLayout, LayerKVShape
from pagefleet_kernels.kv_pool import KVPool, LayerCache

MODES = ("bfloat16", "fp8_e4m3", "int8", "int8k_int4v", "int4")
BLOCK_SIZE = 16
POINTERS = {
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float32: "*fp32",
    torch.float8_e4m3fn: "*fp8e4nv",
    torch.int8: "*i8",
    torch.uint8: "*u8",
    torch.int16: "*i16",
    torch.int32: "*i32",
    torch.int64: "*i64",
}

__all__ = ["HEAD_DIMS", "MODES", "arches_of", "one_block", "pointer", "pointers"]


def one_block(mode: str, widths: tuple[int, int], num_kv_heads: int) -> LayerCache:
    layer = LayerKVShape(num_kv_heads=num_kv_heads, head_dim=widths[0], v_head_dim=widths[1])
    layout = KVLayout(mode=mode, block_size=BLOCK_SIZE, layers=(layer,))
    return KVPool(layout, num_blocks=1, device=torch.device("cpu")).layer(0)


def pointer(dtype: str) -> str:
    """Triton's name for a pointer to numbers of a torch dtype."""
    return POINTERS[getattr(torch, dtype)]


def pointers(**tensors: torch.Tensor | None) -> dict[str, str]:
    """By argument; what is None is left out."""
    return {name: POINTERS[each.dtype] for name, each in tensors.items() if each is not None}


def arches_of(mode: str) -> tuple[int, ...]:
    """Where a mode can be compiled: no e4m3 before its instructions."""
    return tuple(arch for arch in ARCHES if mode != "fp8_e4m3" or arch >= FP8_CAPABILITY)
