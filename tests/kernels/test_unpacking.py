"""What products with quantized weights hold beside their result, and that it is what is counted.

Covered: plain torch, whose every tensor is counted as it runs, for all formats and types; figures
of the kernels' large batches, whose one tensor the kernels' own tests see. Left out: allocators.
"""

import pytest
import torch

from pagefleet_kernels import Fp8BlockWeight, QuantizedWeight
from pagefleet_kernels.fp8_matmul import quantize_fp8_weight
from pagefleet_kernels.int4_matmul import pack_int4
from pagefleet_kernels.quantized_matmul import unpacked_matmul
from pagefleet_kernels.unpacking import (
    LARGE_BATCH,
    UNPACKED_OUTPUTS,
    product_bytes,
    unpacked_outputs,
)
from tests.support.live_memory import live_memory

INPUTS, OUTPUTS = 1024, UNPACKED_OUTPUTS + 128


def _weights() -> list[QuantizedWeight]:
    codes = torch.zeros(INPUTS, OUTPUTS, dtype=torch.uint8)
    scales = torch.ones(INPUTS // 32, OUTPUTS)
    blocks = torch.zeros(OUTPUTS, INPUTS).to(torch.float8_e4m3fn)
    return [
        pack_int4(codes, scales, None),
        pack_int4(codes, scales, torch.zeros(scales.shape)),
        quantize_fp8_weight(torch.ones(OUTPUTS, INPUTS)),
        Fp8BlockWeight(blocks, torch.ones(OUTPUTS // 128, INPUTS // 128)),
    ]


@pytest.mark.parametrize("num_rows", [1, 3000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("weight", _weights(), ids=lambda each: type(each).__name__)
def test_plain_torch_holds_what_is_counted(
    weight: QuantizedWeight, dtype: torch.dtype, num_rows: int
) -> None:
    x = torch.zeros(num_rows, INPUTS, dtype=dtype)
    parts = (weight.codes, weight.scales, getattr(weight, "zeros", None))
    with live_memory(x, *(each for each in parts if each is not None)) as memory:
        y = unpacked_matmul(x, weight)
    counted = product_bytes(
        num_rows=num_rows,
        in_features=INPUTS,
        out_features=OUTPUTS,
        itemsize=dtype.itemsize,
        has_kernel=False,
    )
    held = memory.peak_bytes - y.nbytes
    assert 0.85 * counted < held <= counted


def test_a_library_needs_the_whole_weight_and_a_kernel_nothing() -> None:
    large, small = (
        product_bytes(
            num_rows=num_rows, in_features=4096, out_features=14336, itemsize=2, has_kernel=True
        )
        for num_rows in (LARGE_BATCH, LARGE_BATCH - 1)
    )
    assert (large, small) == (4096 * 14336 * 2, 0)
    assert unpacked_outputs(14336, has_kernel=True) == 14336


def test_fewer_outputs_than_one_piece_are_one_piece() -> None:
    assert unpacked_outputs(10, has_kernel=False) == 10
    assert unpacked_outputs(5000, has_kernel=False) == UNPACKED_OUTPUTS
