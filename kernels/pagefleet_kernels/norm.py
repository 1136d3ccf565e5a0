"""RMSNorm, alone or after adding a residual: the reference in plain torch.

y = x / sqrt(mean(x^2) + eps) * weight, in fp32, with the roundings of Hugging Face's models:
a sum with the residual is rounded to the tensors' type before it is normalized; "llama" rounds
x / sqrt(...) before it multiplies by the weight, "gemma" multiplies by 1 + weight in fp32.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from pagefleet_kernels.checks import check, check_tensor

Casting = Literal["llama", "gemma"]
CASTINGS: tuple[Casting, ...] = ("llama", "gemma")
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
LARGEST_WIDTH = 32768  # a row is held in the registers of one program


@dataclass(frozen=True, slots=True, eq=False)
class NormedSum:
    """What a layer goes on with, and the residual of the next one."""

    normed: torch.Tensor  # [num_tokens, hidden_size]
    summed: torch.Tensor  # [num_tokens, hidden_size]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeadNorms:
    """RMSNorm of every head before it is turned, with the roundings of "llama"."""

    query: torch.Tensor  # [head_dim], of the rows' dtype
    key: torch.Tensor
    eps: float


def rms_norm_reference(
    x: torch.Tensor,  # [num_tokens, hidden_size]
    weight: torch.Tensor,  # [hidden_size]
    *,
    eps: float,
    casting: Casting = "llama",
) -> torch.Tensor:
    check_norm(x, None, weight, eps=eps, casting=casting)
    exact = x.float()
    scaled = exact * torch.rsqrt(exact.square().mean(dim=-1, keepdim=True) + eps)
    if casting == "gemma":
        return (scaled * (1 + weight.float())).to(x.dtype)
    return scaled.to(x.dtype) * weight


def add_rms_norm_reference(
    x: torch.Tensor,  # [num_tokens, hidden_size]
    residual: torch.Tensor,  # [num_tokens, hidden_size]
    weight: torch.Tensor,  # [hidden_size]
    *,
    eps: float,
    casting: Casting = "llama",
) -> NormedSum:
    check_norm(x, residual, weight, eps=eps, casting=casting)
    summed = x + residual
    return NormedSum(rms_norm_reference(summed, weight, eps=eps, casting=casting), summed)


def check_norm(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    *,
    eps: float,
    casting: str,
) -> None:
    check_tensor("x", x, shape=(None, None), dtypes=FLOATS, device=x.device)
    width = x.shape[1]
    check(0 < width <= LARGEST_WIDTH, "x.shape[1]", width, f"between 1 and {LARGEST_WIDTH}")
    same = (x.dtype,)
    check_tensor("weight", weight, shape=(width,), dtypes=same, device=x.device)
    if residual is not None:
        shape = (x.shape[0], width)
        check_tensor("residual", residual, shape=shape, dtypes=same, device=x.device)
    check(eps > 0, "eps", eps, "above 0")
    check(casting in CASTINGS, "casting", casting, " or ".join(CASTINGS))
