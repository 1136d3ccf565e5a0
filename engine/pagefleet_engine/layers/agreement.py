"""Whether a fused layer computes what Hugging Face's does, and why it is left out if not."""

import math

import torch

# Of || found - expected || / || expected || of a token. In random layers of five families, with
# weights of 0.02 and 0.2, roundings came to a fifth of these; RoPE in other pairs comes to 0.7.
TOLERANCES = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}


class KeepAsItIs(Exception):
    """A module is not replaced; says why."""


def tolerance(dtype: torch.dtype) -> float:
    """The largest difference that roundings explain."""
    if dtype not in TOLERANCES:
        raise KeepAsItIs(f"its numbers are {dtype}")
    return TOLERANCES[dtype]


def difference(found: torch.Tensor, expected: torch.Tensor, *, share: float = 1.0) -> float:
    """Relative, of each token; the largest of this share of them."""
    if found.shape != expected.shape:
        return float("inf")
    exact = expected.double().flatten(1)  # [num_tokens, ...]
    errors = (found.double().flatten(1) - exact).norm(dim=1) / exact.norm(dim=1)
    errors = errors.nan_to_num(nan=float("inf")).sort().values
    return float(errors[math.ceil(share * len(errors)) - 1])
