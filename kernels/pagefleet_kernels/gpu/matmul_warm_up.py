"""Compile every product with a quantized weight that a batch can reach, before any request."""

import torch

from pagefleet_kernels.fp8_matmul import Fp8Weight
from pagefleet_kernels.gpu import fp8_matmul, int4_matmul
from pagefleet_kernels.gpu.device import traits_of
from pagefleet_kernels.gpu.split_k import LargestTile, matmul_launch
from pagefleet_kernels.int4_matmul import Int4Weight
from pagefleet_kernels.unpacking import LARGE_BATCH


def warm_up_matmul(weight: Int4Weight | Fp8Weight, *, dtype: torch.dtype) -> int:
    """Multiply zeros; returns how many products that took."""
    device, is_int4 = weight.codes.device, isinstance(weight, Int4Weight)
    counts = reaching_rows(
        int4_matmul.TILE if is_int4 else fp8_matmul.TILE,
        in_features=weight.in_features,
        out_features=weight.out_features,
        num_processors=traits_of(device).num_processors,
    )
    for num_rows in counts:
        x = torch.zeros(num_rows, weight.in_features, dtype=dtype, device=device)
        if isinstance(weight, Int4Weight):
            int4_matmul.int4_matmul(x, weight)
        else:
            fp8_matmul.fp8_matmul(x, weight)
    return len(counts)


def reaching_rows(
    tile: LargestTile, *, in_features: int, out_features: int, num_processors: int
) -> list[int]:
    """The fewest rows of each way to launch a product, and those of a large batch."""
    fewest: dict[object, int] = {}
    for num_rows in range(1, LARGE_BATCH):
        launch = matmul_launch(
            tile,
            num_rows=num_rows,
            in_features=in_features,
            out_features=out_features,
            num_processors=num_processors,
        )
        fewest.setdefault(launch, num_rows)
    return [*fewest.values(), LARGE_BATCH]
