"""JoinedLinears: linear layers that read the same input, as one product of one weight."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import nn

from pagefleet_engine.layers.fused import joined_bias

Projections = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]


def project(linears: Sequence[nn.Module]) -> Projections:
    """What the layers make of an input [num_tokens, in_features], each as it would itself."""
    plain = [each for each in linears if type(each) is nn.Linear and not has_hooks(each)]
    if len(plain) == len(linears):
        return JoinedLinears(plain)
    return lambda x: tuple(each(x) for each in linears)


class JoinedLinears:
    """Owns the joined weight; the layers' own weights become views of it, so none is held twice."""

    @torch.no_grad()
    def __init__(self, linears: Sequence[nn.Linear]) -> None:
        self._sizes = [each.out_features for each in linears]
        self._weight = torch.cat([each.weight for each in linears])
        self._bias = joined_bias(linears)
        for each, weight in zip(linears, torch.split(self._weight, self._sizes), strict=True):
            each.weight = nn.Parameter(weight, requires_grad=False)

    def __call__(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.split(F.linear(x, self._weight, self._bias), self._sizes, dim=-1)


def has_hooks(module: nn.Module) -> bool:
    """Whether calling the module does more than its forward."""
    return bool(module._forward_hooks or module._forward_pre_hooks)
