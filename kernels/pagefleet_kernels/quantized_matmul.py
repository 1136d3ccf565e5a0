"""Multiply by quantized weights with what the device has: a kernel, or rows unpacked in blocks."""

import torch

from pagefleet_kernels.fp8_blocks import Fp8BlockWeight
from pagefleet_kernels.fp8_matmul import FIRST_CAPABILITY, Fp8Weight
from pagefleet_kernels.gpu.device import traits_of
from pagefleet_kernels.int4_matmul import X_DTYPES, Int4Weight
from pagefleet_kernels.unpacking import unpacked_outputs

QuantizedWeight = Int4Weight | Fp8Weight | Fp8BlockWeight

_FP8_UNIT = 16  # inputs that the fp8 kernel loads at a time


def quantized_matmul(x: torch.Tensor, weight: QuantizedWeight) -> torch.Tensor:
    """[num_tokens, in_features] to [num_tokens, out_features], in x's type."""
    if x.device.type == "cuda" and _has_kernel_here(weight, x.dtype, x.device):
        return _by_kernel(x, weight)
    return unpacked_matmul(x, weight)


def warm_up_quantized_matmul(weight: QuantizedWeight, dtype: torch.dtype) -> int:
    """Compile what products with it launch on its device; returns how many were computed."""
    device = weight.codes.device
    if device.type != "cuda":
        return 0
    if isinstance(weight, Fp8BlockWeight) or not _has_kernel_here(weight, dtype, device):
        return 0
    from pagefleet_kernels.gpu.matmul_warm_up import warm_up_matmul

    return warm_up_matmul(weight, dtype=dtype)


def unpacked_matmul(x: torch.Tensor, weight: QuantizedWeight) -> torch.Tensor:
    """In plain torch, for any device and type: some outputs at a time, each rounded to x's type."""
    y = x.new_empty(x.shape[0], weight.out_features)
    step = unpacked_outputs(weight.out_features, has_kernel=False)
    for start in range(0, weight.out_features, step):
        stop = min(start + step, weight.out_features)
        y[:, start:stop] = x @ weight.rows(start, stop).to(x.dtype).T
    return y


def has_kernel(weight: QuantizedWeight, dtype: torch.dtype, *, capability: int) -> bool:
    """Whether a GPU of this capability (90 for 9.0) has a kernel for the product."""
    if dtype not in X_DTYPES or isinstance(weight, Fp8BlockWeight):
        return False
    if isinstance(weight, Fp8Weight):
        return capability >= FIRST_CAPABILITY and weight.in_features % _FP8_UNIT == 0
    return True


def _has_kernel_here(weight: QuantizedWeight, dtype: torch.dtype, device: torch.device) -> bool:
    return has_kernel(weight, dtype, capability=traits_of(device).capability)


def _by_kernel(x: torch.Tensor, weight: QuantizedWeight) -> torch.Tensor:
    # Imported here: triton exists on Linux alone, and a CPU does without it.
    from pagefleet_kernels.gpu.fp8_matmul import fp8_matmul
    from pagefleet_kernels.gpu.int4_matmul import int4_matmul

    if isinstance(weight, Int4Weight):
        return int4_matmul(x, weight)
    assert isinstance(weight, Fp8Weight)
    return fp8_matmul(x, weight)
