"""FusedNorm: an RMSNorm by one kernel, which also makes the sum that comes before it."""

from dataclasses import dataclass

import torch
from torch import nn

from pagefleet_engine.layers.agreement import KeepAsItIs, difference, tolerance
from pagefleet_engine.layers.joined import has_hooks
from pagefleet_kernels import KernelBackend
from pagefleet_kernels.norm import CASTINGS, Casting, NormedSum, rms_norm_reference

TRIED_ROWS = 8


@dataclass(frozen=True, slots=True, eq=False)
class Unadded:
    """Hidden states as two summands, for the next norm to add."""

    residual: torch.Tensor  # [num_tokens, hidden_size]
    addend: torch.Tensor  # [num_tokens, hidden_size]


# Between layers: a packed batch [1, num_tokens, hidden_size], or its summands.
Hidden = torch.Tensor | Unadded


@dataclass(frozen=True, slots=True, eq=False)
class NormWeight:
    """All that an RMSNorm is."""

    weight: torch.Tensor  # [hidden_size]
    eps: float
    casting: Casting


class FusedNorm:
    """Gives what is normalized, and the sum that was."""

    def __init__(self, norm: NormWeight, backend: KernelBackend) -> None:
        self._norm = norm
        self._backend = backend

    def __call__(self, hidden: Hidden) -> NormedSum:
        norm, backend = self._norm, self._backend
        if isinstance(hidden, Unadded):
            return backend.add_rms_norm(
                hidden.addend, hidden.residual, norm.weight, eps=norm.eps, casting=norm.casting
            )
        rows = rows_of(hidden)
        normed = backend.rms_norm(rows, norm.weight, eps=norm.eps, casting=norm.casting)
        return NormedSum(normed, rows)


class FusedFinalNorm:
    """In the place of the forward of the norm behind the last layer."""

    def __init__(self, norm: FusedNorm) -> None:
        self._norm = norm

    def __call__(self, hidden_states: Hidden) -> torch.Tensor:
        return self._norm(hidden_states).normed[None]


def rows_of(hidden: torch.Tensor) -> torch.Tensor:
    """[num_tokens, hidden_size] of a packed batch."""
    assert hidden.shape[0] == 1, "a step is one packed batch"
    return hidden[0]


@torch.inference_mode()
def read_norm(module: nn.Module) -> NormWeight:
    """What the module computes, found by trying; KeepAsItIs if that is no RMSNorm."""
    name, weight = type(module).__name__, getattr(module, "weight", None)
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if not isinstance(weight, torch.Tensor) or not isinstance(eps, float) or has_hooks(module):
        raise KeepAsItIs(f"{name} is not known as an RMSNorm")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(TRIED_ROWS, weight.shape[0], generator=generator) + 1  # LayerNorm differs
    x = x.to(weight)
    for casting in CASTINGS:
        found = rms_norm_reference(x, weight, eps=eps, casting=casting)
        if difference(found, module(x)) <= tolerance(x.dtype):
            return NormWeight(weight, eps, casting)
    raise KeepAsItIs(f"{name} is no RMSNorm")
