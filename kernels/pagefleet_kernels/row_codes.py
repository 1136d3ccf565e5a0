"""Rows of keys and values as stored codes with their scales, and back.

What a row becomes depends on that row alone, so a token gives the same bytes in any batch, in any
chunk and when it is computed again. Codes are rounded half to even from a division by the scale as
it is stored. Not-a-number survives, so that a broken request is noticed.
"""

import torch

from pagefleet_kernels.kv_layout import int4_group
from pagefleet_kernels.kv_pool import FP8, CachePart, code_dtype

INT8_LARGEST = 127
FP8_LARGEST = torch.finfo(FP8).max  # 448
SMALLEST_SCALE = 1e-8  # a row of zeros has no scale of its own
INT4_LARGEST = 15
INT4_SMALLEST_SCALE = 2.0**-24  # the smallest float16 above zero, for groups of equal values

Encoded = tuple[torch.Tensor, torch.Tensor | None]


def encode_rows(rows: torch.Tensor, row_format: str) -> Encoded:
    """Codes and scales of rows [..., width], shaped as in CachePart."""
    if row_format == "int8":
        return quantize_int8(rows)
    if row_format == "fp8_e4m3":
        return quantize_fp8(rows)
    if row_format == "int4":
        return quantize_int4(rows)
    return rows.to(code_dtype(row_format)), None


def quantize_int8(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes [..., width] and the float32 scale of each row [...]: a value is their product."""
    exact = rows.float()
    scales = (exact.abs().amax(dim=-1) / INT8_LARGEST).clamp_min(SMALLEST_SCALE)
    codes = (exact / scales[..., None]).round().clamp(-INT8_LARGEST, INT8_LARGEST)
    return codes.to(torch.int8), scales


def quantize_fp8(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The nearest e4m3 [..., width] of each value over its row's float32 scale [...]."""
    exact = rows.float()
    scales = (exact.abs().amax(dim=-1) / FP8_LARGEST).clamp_min(SMALLEST_SCALE)
    return (exact / scales[..., None]).clamp(-FP8_LARGEST, FP8_LARGEST).to(FP8), scales


def quantize_int4(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes of two elements [..., width / 2], and a scale and a minimum [..., groups, 2] float16.

    A group beyond the range of float16 becomes not-a-number.
    """
    group = int4_group(rows.shape[-1])
    exact = rows.float().reshape(*rows.shape[:-1], rows.shape[-1] // group, group)
    lowest, highest = exact.aminmax(dim=-1)
    steps = ((highest - lowest) / INT4_LARGEST).clamp_min(INT4_SMALLEST_SCALE)
    scales = torch.stack([steps, lowest], dim=-1).to(torch.float16)
    step, minimum = scales.float()[..., None].unbind(-2)
    codes = ((exact - minimum) / step).round().clamp(0, INT4_LARGEST).to(torch.uint8)
    low, high = codes.flatten(-2).chunk(2, dim=-1)
    return low | (high << 4), scales


def decode_rows(part: CachePart, codes: torch.Tensor, scales: torch.Tensor | None) -> torch.Tensor:
    """The values [..., width] that codes and scales of this part's format stand for.

    Plain rows come back as they are, others in float32.
    """
    if part.row_format == "int4":
        assert scales is not None
        return _decode_int4(codes, scales, part.width)
    if scales is None:
        return codes
    values = _e4m3_values(codes) if codes.dtype == FP8 else codes.float()
    return values.mul_(scales[..., None])


def _decode_int4(codes: torch.Tensor, scales: torch.Tensor, width: int) -> torch.Tensor:
    values = torch.empty(*codes.shape[:-1], width, device=codes.device)
    low, high = values.chunk(2, dim=-1)
    low.copy_(codes & 15)
    high.copy_(codes >> 4)
    step, minimum = scales.float()[..., None].unbind(-2)  # [..., groups, 1] each
    groups = scales.shape[-2]
    values.view(*values.shape[:-1], groups, width // groups).mul_(step).add_(minimum)
    return values


def _e4m3_values(codes: torch.Tensor) -> torch.Tensor:
    """Float32 values looked up by code: on a CPU faster than torch's conversion."""
    every_code = torch.arange(256, dtype=torch.uint8, device=codes.device)
    meaning = every_code.view(FP8).float()
    picked = codes.view(torch.uint8).flatten().int()
    return meaning.index_select(0, picked).view(codes.shape)
