"""How far a kernel's result is from the exact one, as kernels are judged in these tests."""

import torch


def relative_error(found: torch.Tensor, exact: torch.Tensor) -> float:
    """|| found - exact || / || exact ||; every number must be finite."""
    assert torch.isfinite(found).all(), "the result holds NaN or Inf"
    exact = exact.double()
    return float((found.double() - exact).norm() / exact.norm().clamp_min(1e-300))
