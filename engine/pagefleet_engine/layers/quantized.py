"""QuantizedLinear: a linear layer that holds its weight in 4 or 8 bits, and computes in floats."""

import torch
from torch import nn

from pagefleet_kernels import QuantizedWeight, quantized_matmul, warm_up_quantized_matmul


class QuantizedLinear(nn.Module):
    """`y = x W^T + b`; replaces an `nn.Linear`. The weight is no parameter: nothing casts it."""

    def __init__(self, weight: QuantizedWeight, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.weight = weight
        self.bias = bias

    @property
    def weight_bytes(self) -> int:
        return self.weight.num_bytes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, self.weight.in_features)
        y = quantized_matmul(rows, self.weight)
        y = y.view(*x.shape[:-1], self.weight.out_features)
        return y if self.bias is None else y + self.bias


@torch.inference_mode()
def warm_up_quantized(model: nn.Module, dtype: torch.dtype) -> int:
    """Compile the products of all layers, those of one size once; returns how many ran."""
    weights = [each.weight for each in model.modules() if isinstance(each, QuantizedLinear)]
    kinds = {(type(each), each.in_features, each.out_features): each for each in weights}
    return sum(warm_up_quantized_matmul(each, dtype) for each in kinds.values())
