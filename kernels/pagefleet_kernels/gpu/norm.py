"""RMSNorm, alone or after adding a residual: one or several rows per program."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from pagefleet_kernels.norm import Casting, NormedSum, check_norm

TILE_ELEMENTS = 2048  # narrow rows share a program until it has this much to do


@triton.jit(do_not_specialize=["num_rows"])  # one variant for every batch
def rms_norm_kernel(
    x,  # [num_rows, width]
    residual,
    weight,
    normed,
    summed,
    num_rows,
    width,
    x_stride,
    residual_stride,
    eps,
    HAS_RESIDUAL: tl.constexpr,
    GEMMA: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < num_rows) & (column < width)
    value = tl.load(x + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        other = tl.load(residual + row * residual_stride + column, mask=inside, other=0.0)
        rounded = (value + other.to(tl.float32)).to(summed.dtype.element_ty)
        tl.store(summed + row * width + column, rounded, mask=inside)
        value = rounded.to(tl.float32)
    mean = tl.sum(value * value, axis=1, keep_dims=True) / width
    scaled = value * (1.0 / tl.sqrt(mean + eps))
    scale = tl.load(weight + column, mask=column < width, other=0.0).to(tl.float32)
    if GEMMA:
        result = scaled * (1.0 + scale)
    else:
        result = scaled.to(normed.dtype.element_ty).to(tl.float32) * scale
    tl.store(normed + row * width + column, result.to(normed.dtype.element_ty), mask=inside)


@dataclass(frozen=True, slots=True, kw_only=True)
class NormLaunch:
    """How rows of one width are spread over programs."""

    block: int
    rows: int
    num_warps: int


def norm_launch(width: int) -> NormLaunch:
    """16 to 32 elements a thread, which fits its registers."""
    block = triton.next_power_of_2(width)
    rows = max(1, TILE_ELEMENTS // block)
    return NormLaunch(block=block, rows=rows, num_warps=min(16, max(4, block // 1024)))


def rms_norm(
    x: torch.Tensor,  # [num_tokens, hidden_size], rows may be strided
    weight: torch.Tensor,  # [hidden_size]
    *,
    eps: float,
    casting: Casting = "llama",
) -> torch.Tensor:
    """As `rms_norm_reference`."""
    check_norm(x, None, weight, eps=eps, casting=casting)
    normed = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _launch(x, None, weight, NormedSum(normed, normed), eps=eps, casting=casting)
    return normed


def add_rms_norm(
    x: torch.Tensor,  # [num_tokens, hidden_size], rows may be strided
    residual: torch.Tensor,  # [num_tokens, hidden_size], rows may be strided
    weight: torch.Tensor,  # [hidden_size]
    *,
    eps: float,
    casting: Casting = "llama",
) -> NormedSum:
    """As `add_rms_norm_reference`."""
    check_norm(x, residual, weight, eps=eps, casting=casting)
    made = NormedSum(*(torch.empty(x.shape, dtype=x.dtype, device=x.device) for _ in range(2)))
    _launch(x, residual, weight, made, eps=eps, casting=casting)
    return made


def _launch(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    made: NormedSum,
    *,
    eps: float,
    casting: Casting,
) -> None:
    num_rows, width = x.shape
    if num_rows == 0:
        return
    launch = norm_launch(width)
    added = x if residual is None else residual
    rms_norm_kernel[(triton.cdiv(num_rows, launch.rows),)](
        x,
        added,
        weight,
        made.normed,
        made.summed,
        num_rows,
        width,
        x.stride(0),
        added.stride(0),
        eps,
        HAS_RESIDUAL=residual is not None,
        GEMMA=casting == "gemma",
        ROWS=launch.rows,
        BLOCK=launch.block,
        num_warps=launch.num_warps,
    )
