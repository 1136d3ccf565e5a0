"""Multiply by fp8 weights: codes become the input's type in registers, scales come last."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from pagefleet_kernels.fp8_matmul import Fp8Weight, check_fp8_device, check_fp8_matmul
from pagefleet_kernels.gpu.device import traits_of
from pagefleet_kernels.gpu.split_k import (
    BLOCK_K,
    LargestTile,
    MatmulLaunch,
    add_parts,
    matmul_launch,
)
from pagefleet_kernels.unpacking import LARGE_BATCH

TILE = LargestTile(block_m=64, block_n=128)


# One compiled kernel for every number of rows: a batch changes at each step.
@triton.jit(do_not_specialize=["num_rows"])
def fp8_matmul_kernel(
    x,  # [num_rows, depth]
    codes,  # [width, depth]
    scales,  # [width], or None where parts are added later
    target,  # [num_rows, width], or float32 [PARTS, num_rows, width]
    num_rows,
    width,
    depth,
    x_stride,
    PARTS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    row = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(2)
    row_inside, column_inside = row < num_rows, column < width

    each = tl.cdiv(tl.cdiv(depth, BLOCK_K), PARTS) * BLOCK_K
    x_at = x + row[:, None].to(tl.int64) * x_stride
    codes_at = codes + column[:, None].to(tl.int64) * depth
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(part * each, tl.minimum(part * each + each, depth), BLOCK_K):
        k = (start + tl.arange(0, BLOCK_K))[None, :]
        value = tl.load(x_at + k, mask=row_inside[:, None] & (k < depth), other=0.0)
        code = tl.load(codes_at + k, mask=column_inside[:, None] & (k < depth), other=0.0)
        total = tl.dot(value, tl.trans(code.to(value.dtype)), total)
    if scales is not None:
        total *= tl.load(scales + column, mask=column_inside, other=0.0)[None, :]

    target_row = part.to(tl.int64) * num_rows + row
    target_at = target + target_row[:, None] * width + column[None, :]
    inside = row_inside[:, None] & column_inside[None, :]
    tl.store(target_at, total.to(target.dtype.element_ty), mask=inside)


def fp8_matmul(x: torch.Tensor, weight: Fp8Weight) -> torch.Tensor:
    """As `fp8_matmul_reference`; rows of x may be strided. Needs sm_89 or newer on a GPU."""
    check_fp8_matmul(x, weight)
    check_fp8_device(traits_of(x.device).capability)
    num_rows, in_features = x.shape
    out_features = weight.codes.shape[0]
    if num_rows >= LARGE_BATCH:
        # Not after the product, which without its scales is too large for fp16.
        return F.linear(x, weight.codes.to(x.dtype).mul_(weight.scales[:, None]))
    target = torch.empty(num_rows, out_features, dtype=x.dtype, device=x.device)
    if target.numel() == 0:
        return target
    launch = matmul_launch(
        TILE,
        num_rows=num_rows,
        in_features=in_features,
        out_features=out_features,
        num_processors=traits_of(x.device).num_processors,
    )
    if launch.parts == 1:
        _multiply(x, weight.codes, weight.scales, target, launch)
    else:
        shape = (launch.parts, num_rows, out_features)
        parts = torch.empty(shape, dtype=torch.float32, device=x.device)
        _multiply(x, weight.codes, None, parts, launch)
        add_parts(parts, weight.scales, target)
    return target


def _multiply(
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor | None,
    target: torch.Tensor,
    launch: MatmulLaunch,
) -> None:
    fp8_matmul_kernel[launch.grid(num_rows=x.shape[0], out_features=codes.shape[0])](
        x,
        codes,
        scales,
        target,
        x.shape[0],
        codes.shape[0],
        x.shape[1],
        x.stride(0),
        PARTS=launch.parts,
        BLOCK_M=launch.block_m,
        BLOCK_N=launch.block_n,
        BLOCK_K=BLOCK_K,
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
        maxnreg=launch.max_registers,
    )
