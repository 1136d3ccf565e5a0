"""Products with quantized weights in plain torch, and when a GPU's kernel takes their place."""

import pytest
import torch

from pagefleet_kernels import Fp8BlockWeight, Fp8Weight, Int4Weight, QuantizedWeight
from pagefleet_kernels.errors import ArgumentError
from pagefleet_kernels.fp8_matmul import quantize_fp8_weight
from pagefleet_kernels.int4_matmul import pack_int4
from pagefleet_kernels.quantized_matmul import has_kernel, quantized_matmul
from pagefleet_kernels.unpacking import UNPACKED_OUTPUTS

OUTPUTS = UNPACKED_OUTPUTS + 10  # more than are unpacked at a time


def _int4(*, has_zeros: bool) -> Int4Weight:
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 16, (96, OUTPUTS), generator=generator)
    zeros = torch.randint(0, 16, (3, OUTPUTS), generator=generator) if has_zeros else None
    return pack_int4(codes, torch.rand(3, OUTPUTS, generator=generator), zeros)


def _fp8(width: int = 96) -> Fp8Weight:
    generator = torch.Generator().manual_seed(0)
    return quantize_fp8_weight(torch.randn(OUTPUTS, width, generator=generator))


def _fp8_blocks() -> Fp8BlockWeight:
    generator = torch.Generator().manual_seed(0)
    codes = torch.randn(OUTPUTS, 160, generator=generator).to(torch.float8_e4m3fn)
    return Fp8BlockWeight(codes, torch.rand(9, 2, generator=generator))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "weight", [_int4(has_zeros=True), _int4(has_zeros=False), _fp8(), _fp8_blocks()]
)
def test_products_are_those_of_the_unpacked_weight(
    weight: QuantizedWeight, dtype: torch.dtype
) -> None:
    x = torch.randn(3, weight.in_features, generator=torch.Generator().manual_seed(1)).to(dtype)
    whole = weight.rows(0, weight.out_features).to(dtype)
    assert whole.shape == (OUTPUTS, weight.in_features)
    torch.testing.assert_close(quantized_matmul(x, weight), x @ whole.T)


def test_a_block_of_fp8_weights_has_its_own_scale() -> None:
    weight = _fp8_blocks()
    for row, column in ((0, 0), (127, 127), (128, 0), (5, 128), (OUTPUTS - 1, 159)):
        expected = weight.codes[row, column].float() * weight.scales[row // 128, column // 128]
        assert weight.rows(0, OUTPUTS)[row, column] == expected
    with pytest.raises(ArgumentError, match=r"scales.shape=\(8, 2\): must be \(9, 2\)"):
        Fp8BlockWeight(weight.codes, weight.scales[:8])


def test_bytes_are_those_of_the_tensors() -> None:
    assert _int4(has_zeros=True).num_bytes == OUTPUTS * (48 + 3 * 4) + OUTPUTS * 3 // 2
    assert _int4(has_zeros=False).num_bytes == OUTPUTS * (48 + 3 * 4)
    assert _fp8().num_bytes == OUTPUTS * (96 + 4)
    assert _fp8_blocks().num_bytes == OUTPUTS * 160 + 9 * 2 * 4


@pytest.mark.parametrize(
    ("weight", "dtype", "capability", "expected"),
    [
        (_int4(has_zeros=True), torch.bfloat16, 80, True),
        (_int4(has_zeros=True), torch.float32, 90, False),
        (_fp8(), torch.float16, 89, True),
        (_fp8(), torch.bfloat16, 80, False),
        (_fp8(width=90), torch.bfloat16, 90, False),
        (_fp8_blocks(), torch.bfloat16, 90, False),
    ],
)
def test_a_kernel_is_used_where_there_is_one(
    weight: QuantizedWeight, dtype: torch.dtype, capability: int, expected: bool
) -> None:
    assert has_kernel(weight, dtype, capability=capability) is expected
