"""Layers that hold one rank's share of a weight and make up the whole result with the others.

A column-parallel layer needs no class of its own: it is an `nn.Linear` with fewer outputs.
"""

import torch
import torch.nn.functional as F
from torch import nn

from pagefleet_engine.parallel.group import RankGroup


class RowLinear(nn.Module):
    """Holds some input columns; every rank gets the sum over the ranks."""

    def __init__(self, linear: nn.Linear, bias: nn.Parameter | None, group: RankGroup) -> None:
        super().__init__()
        self.linear = linear  # without the bias, which must be added once
        self.bias = bias
        self._group = group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self._group.all_reduce(self.linear(x))
        return y if self.bias is None else y + self.bias


class GatheredLinear(nn.Module):
    """Holds some output rows, padded to the same number on each rank; every rank gets all."""

    def __init__(self, linear: nn.Linear, group: RankGroup, *, out_features: int) -> None:
        super().__init__()
        self.linear = linear
        self.out_features = out_features
        self._group = group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._group.gather_columns(self.linear(x))[..., : self.out_features]


class VocabEmbedding(nn.Module):
    """Holds the vectors of some tokens; the ranks that lack one add zero."""

    def __init__(self, weight: nn.Parameter, group: RankGroup, *, first: int) -> None:
        super().__init__()
        self.weight = weight
        self._first = first
        self._group = group

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        places = token_ids - self._first
        absent = (places < 0) | (places >= self.weight.shape[0])
        vectors = F.embedding(places.masked_fill(absent, 0), self.weight)
        return self._group.all_reduce(vectors.masked_fill(absent[..., None], 0.0))
