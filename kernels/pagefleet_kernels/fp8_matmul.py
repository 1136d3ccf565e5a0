"""Multiply by fp8 weights with one scale per output: the format, and a plain-torch reference."""

from dataclasses import dataclass

import torch

from pagefleet_kernels.checks import check, check_tensor
from pagefleet_kernels.errors import ArgumentError

FP8 = torch.float8_e4m3fn
FP8_LARGEST = 448.0
SMALLEST_SCALE = 1e-8  # an output of zeros has no scale of its own
X_DTYPES = (torch.float16, torch.bfloat16)
FIRST_CAPABILITY = 89  # Ada; before it no instruction converts e4m3


@dataclass(frozen=True, slots=True, eq=False)
class Fp8Weight:
    """One linear layer's weight: code * scale."""

    codes: torch.Tensor  # [out_features, in_features] float8_e4m3fn
    scales: torch.Tensor  # [out_features] float32

    @property
    def in_features(self) -> int:
        return self.codes.shape[1]

    @property
    def out_features(self) -> int:
        return self.codes.shape[0]

    @property
    def num_bytes(self) -> int:
        return self.codes.numel() + self.scales.numel() * self.scales.itemsize

    def rows(self, start: int, stop: int) -> torch.Tensor:
        """Outputs of `start` to `stop`: [stop - start, in_features] in float32."""
        return self.codes[start:stop].float().mul_(self.scales[start:stop, None])


def quantize_fp8_weight(weight: torch.Tensor) -> Fp8Weight:
    """From [out_features, in_features]; the largest weight of an output becomes +-448."""
    exact = weight.float()
    scales = (exact.abs().amax(dim=1) / FP8_LARGEST).clamp_min(SMALLEST_SCALE)
    codes = (exact / scales[:, None]).clamp(-FP8_LARGEST, FP8_LARGEST).to(FP8)
    return Fp8Weight(codes, scales)


def fp8_matmul_reference(x: torch.Tensor, weight: Fp8Weight) -> torch.Tensor:
    """[num_tokens, in_features] to [num_tokens, out_features], in x's type."""
    check_fp8_matmul(x, weight)
    return ((x.float() @ weight.codes.float().T) * weight.scales).to(x.dtype)


def check_fp8_matmul(x: torch.Tensor, weight: Fp8Weight) -> None:
    codes, scales = weight.codes, weight.scales
    check_tensor("codes", codes, shape=(None, None), dtypes=(FP8,), device=x.device)
    check_tensor("x", x, shape=(None, codes.shape[1]), dtypes=X_DTYPES, device=x.device)
    outputs = (codes.shape[0],)
    check_tensor("scales", scales, shape=outputs, dtypes=(torch.float32,), device=x.device)
    check(codes.is_contiguous(), "codes.stride()", codes.stride(), "that of no gaps")
    check(codes.shape[1] % 16 == 0, "codes.shape[1]", codes.shape[1], "a multiple of 16")


def check_fp8_device(capability: int) -> None:
    """fp8 needs Ada or newer; capability is 90 for 9.0."""
    if capability < FIRST_CAPABILITY:
        hint = "must be sm_89 or newer; int4 weights work on sm_80"
        raise ArgumentError("x.device", f"sm_{capability}", hint)
