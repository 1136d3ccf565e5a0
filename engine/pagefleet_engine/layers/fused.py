"""FusedLinears: linear layers that read the same input, computed by one packed multiplication.

Models call query, key and value (or gate and up) one after the other with one tensor. The first
call computes all of them and the others take their part, so the model's code stays as it is while
a small batch pays for one operator in place of three.
"""

from collections.abc import Sequence

import torch
from torch import nn

from pagefleet_engine.layers.linear import PackedLinear

FUSED_NAMES = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


class FusedLinears(nn.Module):
    """The weights of several layers side by side; keeps one input until all took their part."""

    def __init__(self, linears: list[nn.Linear]) -> None:
        super().__init__()
        self._sizes = [each.out_features for each in linears]
        weight = torch.cat([each.weight.detach() for each in linears])
        self.packed = PackedLinear(weight, joined_bias(linears))
        self._input: torch.Tensor | None = None
        self._outputs: tuple[torch.Tensor, ...] = ()

    def part(self, x: torch.Tensor, index: int) -> torch.Tensor:
        """What layer `index` makes of `x`."""
        if x is not self._input:
            self._outputs = self.packed(x).split(self._sizes, dim=-1)
            self._input = x
        output = self._outputs[index]
        if index == len(self._sizes) - 1:
            self._input, self._outputs = None, ()
        return output


class FusedPart(nn.Module):
    """Stands where one of the layers stood."""

    def __init__(self, group: FusedLinears, index: int) -> None:
        super().__init__()
        self.group = group
        self._index = index

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.group.part(x, self._index)


@torch.no_grad()
def fuse_linears(model: nn.Module) -> int:
    """Fuse what reads the same input, in place; returns how many layers became parts."""
    count = 0
    for parent in list(model.modules()):
        for names in FUSED_NAMES:
            linears = [getattr(parent, name, None) for name in names]
            group = [each for each in linears if type(each) is nn.Linear]
            if len(group) == len(names) and len({each.in_features for each in group}) == 1:
                fused = FusedLinears(group)
                for index, name in enumerate(names):
                    setattr(parent, name, FusedPart(fused, index))
                count += len(names)
    return count


def joined_bias(linears: Sequence[nn.Linear]) -> torch.Tensor | None:
    """The biases one after the other, zeros where a layer has none; None if no layer has one."""
    if all(each.bias is None for each in linears):
        return None
    return torch.cat(
        [
            each.weight.new_zeros(each.out_features) if each.bias is None else each.bias.detach()
            for each in linears
        ]
    )
