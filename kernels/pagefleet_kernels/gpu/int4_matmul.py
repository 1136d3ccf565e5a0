"""Multiply by int4 weights in groups: one group per step, its two halves as two products."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from pagefleet_kernels.gpu.device import traits_of
from pagefleet_kernels.gpu.split_k import (
    LargestTile,
    MatmulLaunch,
    add_parts,
    matmul_launch,
)
from pagefleet_kernels.int4_matmul import Int4Weight, check_int4_matmul
from pagefleet_kernels.unpacking import LARGE_BATCH

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
def _zeros_less_8(zeros, at, column, inside, dtype: tl.constexpr):
    """In float32, of outputs whose scales lie at `at`."""
    pair = tl.load(zeros + (at >> 1), mask=inside, other=0)
    return _centered((pair >> ((column & 1) * 4).to(tl.uint8)) & 0xF, dtype).to(tl.float32)


# One compiled kernel for every number of rows: a batch changes at each step.
@triton.jit(do_not_specialize=["num_rows"])
def int4_matmul_kernel(
    x,  # [num_rows, num_groups * 2 * HALF]
    codes,  # [num_groups, width, HALF]
    scales,  # [num_groups, width]
    zeros,  # [num_groups, width / 2], or None: all are 8
    target,  # [num_rows, width], or float32 [PARTS, num_rows, width]
    num_rows,
    width,
    num_groups,
    x_stride,
    HALF: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    row = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(2)
    byte = tl.arange(0, HALF)
    row_inside, column_inside = row < num_rows, column < width
    dtype: tl.constexpr = x.dtype.element_ty

    each = tl.cdiv(num_groups, PARTS)
    first, last = part * each, tl.minimum(part * each + each, num_groups)
    x_at = x + row[:, None].to(tl.int64) * x_stride + byte[None, :] + first * 2 * HALF
    at = first.to(tl.int64) * width + column  # of one group's scales
    codes_at = codes + at[:, None] * HALF + byte[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(first, last):
        low_x = tl.load(x_at, mask=row_inside[:, None], other=0.0)  # [BLOCK_M, HALF]
        high_x = tl.load(x_at + HALF, mask=row_inside[:, None], other=0.0)
        packed = tl.load(codes_at, mask=column_inside[:, None], other=0)  # [BLOCK_N, HALF]
        scale = tl.load(scales + at, mask=column_inside, other=0.0).to(tl.float32)
        product = tl.dot(low_x, tl.trans(_centered(packed & 0xF, dtype)))
        product = tl.dot(high_x, tl.trans(_centered(packed >> 4, dtype)), product)
        if zeros is not None:
            zero = _zeros_less_8(zeros, at, column, column_inside, dtype)
            row_sum = tl.sum(low_x.to(tl.float32), axis=1) + tl.sum(high_x.to(tl.float32), axis=1)
            product -= row_sum[:, None] * zero[None, :]
        total += product * scale[None, :]
        x_at += 2 * HALF
        codes_at += width * HALF
        at += width

    target_row = part.to(tl.int64) * num_rows + row
    target_at = target + target_row[:, None] * width + column[None, :]
    inside = row_inside[:, None] & column_inside[None, :]
    tl.store(target_at, total.to(target.dtype.element_ty), mask=inside)


@triton.jit
def dequantize_int4_kernel(
    codes, scales, zeros, target, width, num_groups, HALF: tl.constexpr, BLOCK: tl.constexpr
):  # target [width, num_groups * 2 * HALF]
    group = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    byte = tl.arange(0, HALF)
    inside = column < width
    at = group.to(tl.int64) * width + column
    packed = tl.load(codes + at[:, None] * HALF + byte[None, :], mask=inside[:, None], other=0)
    scale = tl.load(scales + at, mask=inside, other=0.0).to(tl.float32)[:, None]
    low = _centered(packed & 0xF, tl.bfloat16).to(tl.float32)
    high = _centered(packed >> 4, tl.bfloat16).to(tl.float32)
    if zeros is not None:
        zero = _zeros_less_8(zeros, at, column, inside, tl.bfloat16)[:, None]
        low -= zero
        high -= zero
    low *= scale
    high *= scale
    start = target + (column[:, None].to(tl.int64) * num_groups + group) * 2 * HALF
    tl.store(start + byte[None, :], low.to(target.dtype.element_ty), mask=inside[:, None])
    tl.store(start + HALF + byte[None, :], high.to(target.dtype.element_ty), mask=inside[:, None])


def int4_matmul(x: torch.Tensor, weight: Int4Weight) -> torch.Tensor:
    """As `int4_matmul_reference`; rows of x may be strided."""
    check_int4_matmul(x, weight)
    num_rows, in_features = x.shape
    if num_rows >= LARGE_BATCH:
        return F.linear(x, unpack_int4(weight, dtype=x.dtype))
    target = torch.empty(num_rows, weight.out_features, dtype=x.dtype, device=x.device)
    if target.numel() == 0:
        return target
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
        HALF=weight.codes.shape[2],
        PARTS=launch.parts,
        BLOCK_M=launch.block_m,
        BLOCK_N=launch.block_n,
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
        maxnreg=launch.max_registers,
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
        HALF=weight.codes.shape[2],
        BLOCK=DEQUANTIZE_ROWS,
    )
    return target
