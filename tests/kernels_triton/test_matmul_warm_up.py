"""Before the first request every way to launch a product with quantized weights was compiled."""

import pytest
import torch

from pagefleet_kernels.fp8_matmul import quantize_fp8_weight
from pagefleet_kernels.gpu import fp8_matmul, int4_matmul
from pagefleet_kernels.gpu.matmul_warm_up import reaching_rows, warm_up_matmul
from pagefleet_kernels.gpu.split_k import LargestTile, matmul_launch
from pagefleet_kernels.int4_matmul import pack_int4
from pagefleet_kernels.unpacking import LARGE_BATCH


@pytest.mark.parametrize("tile", [int4_matmul.TILE, fp8_matmul.TILE], ids=["int4", "fp8"])
@pytest.mark.parametrize(("k", "n"), [(4096, 4096), (4096, 28672), (14336, 4096), (896, 128)])
def test_the_fewest_rows_reach_every_launch(tile: LargestTile, k: int, n: int) -> None:
    def launch(rows: int) -> object:
        return matmul_launch(tile, num_rows=rows, in_features=k, out_features=n, num_processors=132)

    counts = reaching_rows(tile, in_features=k, out_features=n, num_processors=132)
    assert counts[-1] == LARGE_BATCH
    below = counts[:-1]
    assert {launch(each) for each in below} == {launch(each) for each in range(1, LARGE_BATCH)}
    assert len({launch(each) for each in below}) == len(below)


def test_weights_of_both_kinds_are_multiplied() -> None:
    codes, scales = torch.zeros(128, 16, dtype=torch.uint8), torch.ones(1, 16).bfloat16()
    assert warm_up_matmul(pack_int4(codes, scales, None), dtype=torch.bfloat16) > 1
    assert warm_up_matmul(quantize_fp8_weight(torch.ones(16, 32)), dtype=torch.bfloat16) > 1
