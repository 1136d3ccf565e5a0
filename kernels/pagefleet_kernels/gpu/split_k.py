"""Spread a matrix product with few rows over a GPU: tiles of the result, and parts of the sum.

A product with few rows reads each weight once and has too few tiles to keep every processor
reading; then several programs share a tile, each with a part of the inputs, and a second kernel
adds their results in a fixed order.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

BLOCK_K = 128  # inputs at once: the largest group of int4 weights
MOST_PARTS = 16
PROGRAMS_PER_PROCESSOR = 2
REDUCE_BLOCK = 1024
REGISTERS_OF_TWO = 128  # of a thread: two programs of eight warps share a processor


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulLaunch:
    """How one product is spread over programs."""

    block_m: int
    block_n: int
    parts: int
    num_warps: int
    num_stages: int
    max_registers: int | None  # of a thread; None: as the assembler likes

    def grid(self, *, num_rows: int, out_features: int) -> tuple[int, int, int]:
        tiles_n = triton.cdiv(out_features, self.block_n)
        return (tiles_n, triton.cdiv(num_rows, self.block_m), self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestTile:
    """What a kernel can hold in registers on every GPU without spilling."""

    block_m: int
    block_n: int


def matmul_launch(
    tile: LargestTile, *, num_rows: int, in_features: int, out_features: int, num_processors: int
) -> MatmulLaunch:
    """Enough programs for every processor, each with at least two steps of the sum."""
    block_m = min(tile.block_m, max(16, triton.next_power_of_2(num_rows)))
    tiles = triton.cdiv(out_features, tile.block_n) * triton.cdiv(num_rows, block_m)
    wanted = triton.cdiv(PROGRAMS_PER_PROCESSOR * num_processors, tiles)
    steps = triton.cdiv(in_features, BLOCK_K)
    parts = max(1, min(wanted, MOST_PARTS, steps // 2))
    return MatmulLaunch(
        block_m=block_m,
        block_n=tile.block_n,
        parts=parts,
        num_warps=8,
        num_stages=4 if block_m <= 32 else 3,
        # Unstated, 32 rows of fp8 spill with Triton 3.7; stated, 64 rows do with every version.
        max_registers=REGISTERS_OF_TWO if block_m <= 32 else None,
    )


@triton.jit
def add_parts_kernel(parts, scales, target, size, width, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """Parts [PARTS, size] float32 become their sum times the column's scale."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in tl.static_range(PARTS):
        total += tl.load(parts + at, mask=inside, other=0.0)
        parts += size
    if scales is not None:
        total *= tl.load(scales + at % width, mask=inside, other=0.0)
    tl.store(target + at, total.to(target.dtype.element_ty), mask=inside)


def add_parts(parts: torch.Tensor, scales: torch.Tensor | None, target: torch.Tensor) -> None:
    """Parts [n, num_rows, width] float32 into target [num_rows, width]."""
    size = target.numel()
    add_parts_kernel[(triton.cdiv(size, REDUCE_BLOCK),)](
        parts,
        scales,
        target,
        size,
        target.shape[1],
        PARTS=parts.shape[0],
        BLOCK=REDUCE_BLOCK,
    )
