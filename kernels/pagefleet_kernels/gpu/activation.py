"""SiLU-mul: a piece of one row per program."""

import torch
import triton
import triton.language as tl

from pagefleet_kernels.activation import check_silu_mul

BLOCK = 2048


@triton.jit
def silu_mul_kernel(gate_up, target, width, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    gate = tl.load(gate_up + row * stride + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * stride + width + column, mask=inside, other=0.0)
    activated = (gate / (1.0 + tl.exp(-gate))).to(target.dtype.element_ty)
    result = activated.to(tl.float32) * up.to(tl.float32)
    tl.store(target + row * width + column, result.to(target.dtype.element_ty), mask=inside)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """As `silu_mul_reference`; rows may be strided."""
    check_silu_mul(gate_up)
    num_rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    target = torch.empty(num_rows, width, dtype=gate_up.dtype, device=gate_up.device)
    if target.numel():
        grid = (num_rows, triton.cdiv(width, BLOCK))
        silu_mul_kernel[grid](gate_up, target, width, gate_up.stride(0), BLOCK=BLOCK, num_warps=8)
    return target
