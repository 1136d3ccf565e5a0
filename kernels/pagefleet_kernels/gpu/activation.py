"""SiLU-mul: a piece of one row per program."""

import torch
import triton
import triton.language as tl

from pagefleet_kernels.activation import check_silu_mul

BLOCK = 2048


@triton.jit
def silu_mul_kernel(gate, up, target, width, gate_stride, up_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    x = tl.load(gate + row * gate_stride + column, mask=inside, other=0.0).to(tl.float32)
    factor = tl.load(up + row * up_stride + column, mask=inside, other=0.0)
    activated = (x / (1.0 + tl.exp(-x))).to(target.dtype.element_ty)
    result = activated.to(tl.float32) * factor.to(tl.float32)
    tl.store(target + row * width + column, result.to(target.dtype.element_ty), mask=inside)


def silu_mul(
    gate: torch.Tensor,  # [num_tokens, intermediate_size], rows may be strided
    up: torch.Tensor,
) -> torch.Tensor:
    """As `silu_mul_reference`."""
    check_silu_mul(gate, up)
    num_rows, width = gate.shape
    target = torch.empty(num_rows, width, dtype=gate.dtype, device=gate.device)
    if target.numel():
        grid = (num_rows, triton.cdiv(width, BLOCK))
        strides = gate.stride(0), up.stride(0)
        silu_mul_kernel[grid](gate, up, target, width, *strides, BLOCK=BLOCK, num_warps=8)
    return target
