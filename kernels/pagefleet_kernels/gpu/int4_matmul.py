"""Multiply by int4 weights in groups of 128: one group per step, its two halves as two products."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from pagefleet_kernels.gpu.device import traits_of
from pagefleet_kernels.gpu.split_k import (
    LARGE_BATCH,
    LargestTile,
    MatmulLaunch,
    add_parts,
    matmul_launch,
)
from pagefleet_kernels.int4_matmul import Int4Weight, check_int4_matmul

TILE = LargestTile(block_m=32, block_n=64)
DEQUANTIZE_ROWS = 64


@triton.jit
def _centered(nibble, dtype: tl.constexpr):
    """A code of 0 to 15 as code - 8, without a conversion instruction.

    The bits of 128 (bf16) or 1024 (fp16) with the code in the last place are that number plus the
    code.
    """
    wide = nibble.to(tl.uint16)
    if dtype == tl.bfloat16:
        return (wide | 0x4300).to(tl.bfloat16, bitcast=True) - 136.0
    else:
        return (wide | 0x6400).to(tl.float16, bitcast=True) - 1032.0


@triton.jit
def int4_matmul_kernel(
    x,  # [num_rows, num_groups * 128]
    codes,  # [num_groups, width, 64]
    scales,  # [num_groups, width]
    zeros,
    target,  # [num_rows, width], or float32 [PARTS, num_rows, width]
    num_rows,
    width,
    num_groups,
    x_stride,
    PARTS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    row = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(2)
    byte = tl.arange(0, 64)
    row_inside, column_inside = row < num_rows, column < width
    dtype: tl.constexpr = x.dtype.element_ty

    each = tl.cdiv(num_groups, PARTS)
    first, last = part * each, tl.minimum(part * each + each, num_groups)
    x_at = x + row[:, None].to(tl.int64) * x_stride + byte[None, :] + first * 128
    at = first.to(tl.int64) * width + column  # of one group's scales
    codes_at = codes + at[:, None] * 64 + byte[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(first, last):
        low_x = tl.load(x_at, mask=row_inside[:, None], other=0.0)  # [BLOCK_M, 64]
        high_x = tl.load(x_at + 64, mask=row_inside[:, None], other=0.0)
        packed = tl.load(codes_at, mask=column_inside[:, None], other=0)  # [BLOCK_N, 64]
        scale = tl.load(scales + at, mask=column_inside, other=0.0).to(tl.float32)
        zero = tl.load(zeros + at, mask=column_inside, other=0.0).to(tl.float32) - 8.0
        product = tl.dot(low_x, tl.trans(_centered(packed & 0xF, dtype)))
        product = tl.dot(high_x, tl.trans(_centered(packed >> 4, dtype)), product)
        row_sum = tl.sum(low_x.to(tl.float32), axis=1) + tl.sum(high_x.to(tl.float32), axis=1)
        total += (product - row_sum[:, None] * zero[None, :]) * scale[None, :]
        x_at += 128
        codes_at += width * 64
        at += width

    target_row = part.to(tl.int64) * num_rows + row
    target_at = target + target_row[:, None] * width + column[None, :]
    inside = row_inside[:, None] & column_inside[None, :]
    tl.store(target_at, total.to(target.dtype.element_ty), mask=inside)


@triton.jit
def dequantize_int4_kernel(
    codes, scales, zeros, target, width, num_groups, BLOCK: tl.constexpr
):  # target [width, num_groups * 128]
    group = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    byte = tl.arange(0, 64)
    inside = column < width
    at = group.to(tl.int64) * width + column
    packed = tl.load(codes + at[:, None] * 64 + byte[None, :], mask=inside[:, None], other=0)
    scale = tl.load(scales + at, mask=inside, other=0.0).to(tl.float32)[:, None]
    zero = tl.load(zeros + at, mask=inside, other=0.0).to(tl.float32)[:, None] - 8.0
    low = (_centered(packed & 0xF, tl.bfloat16).to(tl.float32) - zero) * scale
    high = (_centered(packed >> 4, tl.bfloat16).to(tl.float32) - zero) * scale
    start = target + column[:, None].to(tl.int64) * num_groups * 128 + group * 128
    tl.store(start + byte[None, :], low.to(target.dtype.element_ty), mask=inside[:, None])
    tl.store(start + 64 + byte[None, :], high.to(target.dtype.element_ty), mask=inside[:, None])


def int4_matmul(x: torch.Tensor, weight: Int4Weight) -> torch.Tensor:
    """As `int4_matmul_reference`; rows of x may be strided."""
    check_int4_matmul(x, weight)
    num_rows, in_features = x.shape
    target = torch.empty(num_rows, weight.out_features, dtype=x.dtype, device=x.device)
    if target.numel() == 0:
        return target
    if num_rows >= LARGE_BATCH:
        return F.linear(x, unpack_int4(weight, dtype=x.dtype))
    launch = matmul_launch(
        TILE,
        num_rows=num_rows,
        in_features=in_features,
        out_features=weight.out_features,
        num_processors=traits_of(x.device).num_processors,
    )
    if launch.parts == 1:
        _multiply(x, weight, target, launch)
    else:
        shape = (launch.parts, num_rows, weight.out_features)
        parts = torch.empty(shape, dtype=torch.float32, device=x.device)
        _multiply(x, weight, parts, launch)
        add_parts(parts, None, target)
    return target


def _multiply(
    x: torch.Tensor, weight: Int4Weight, target: torch.Tensor, launch: MatmulLaunch
) -> None:
    grid = launch.grid(num_rows=x.shape[0], out_features=weight.out_features)
    int4_matmul_kernel[grid](
        x,
        weight.codes,
        weight.scales,
        weight.zeros,
        target,
        x.shape[0],
        weight.out_features,
        weight.codes.shape[0],
        x.stride(0),
        PARTS=launch.parts,
        BLOCK_M=launch.block_m,
        BLOCK_N=launch.block_n,
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
    )


def unpack_int4(weight: Int4Weight, *, dtype: torch.dtype) -> torch.Tensor:
    """As `dequantize_int4`, rounded to this type."""
    shape = (weight.out_features, weight.in_features)
    target = torch.empty(shape, dtype=dtype, device=weight.codes.device)
    grid = (weight.codes.shape[0], triton.cdiv(weight.out_features, DEQUANTIZE_ROWS))
    dequantize_int4_kernel[grid](
        weight.codes,
        weight.scales,
        weight.zeros,
        target,
        weight.out_features,
        weight.codes.shape[0],
        BLOCK=DEQUANTIZE_ROWS,
    )
    return target
