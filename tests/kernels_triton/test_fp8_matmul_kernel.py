"""Products with fp8 weights in the interpreter against the dequantized weight in float64.

Covered: parts of the sum, rows, outputs and inputs that do not fill tiles, both number formats, a
large batch, saturation of the codes, refusals. Left out: speed.
"""

import dataclasses

import pytest
import torch

from pagefleet_kernels.errors import ArgumentError
from pagefleet_kernels.fp8_matmul import (
    Fp8Weight,
    check_fp8_device,
    fp8_matmul_reference,
    quantize_fp8_weight,
)
from pagefleet_kernels.gpu.fp8_matmul import fp8_matmul
from pagefleet_kernels.unpacking import product_bytes
from tests.support.kernel_error import relative_error
from tests.support.live_memory import live_memory

TOLERANCES = {torch.float16: 2e-3, torch.bfloat16: 6e-3}


def weight(in_features: int, out_features: int) -> Fp8Weight:
    generator = torch.Generator().manual_seed(in_features)
    return quantize_fp8_weight(torch.randn(out_features, in_features, generator=generator) * 0.1)


def inputs(num_rows: int, width: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    generator = torch.Generator().manual_seed(num_rows)
    return torch.randn(num_rows, width + 16, generator=generator).to(dtype)[:, :width]


def exact_product(x: torch.Tensor, packed: Fp8Weight) -> torch.Tensor:
    return x.double() @ (packed.codes.double() * packed.scales.double()[:, None]).T


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize(
    "shape", [(1, 16, 8), (3, 576, 72), (17, 1200, 130), (40, 256, 200), (80, 384, 96)], ids=str
)
def test_products_are_those_of_the_dequantized_weight(
    shape: tuple[int, int, int], dtype: torch.dtype
) -> None:
    num_rows, in_features, out_features = shape
    x, packed = inputs(num_rows, in_features, dtype), weight(in_features, out_features)
    exact = exact_product(x, packed)
    assert relative_error(fp8_matmul(x, packed), exact) < TOLERANCES[dtype]
    assert relative_error(fp8_matmul_reference(x, packed), exact) < TOLERANCES[dtype]


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_a_large_batch_gives_the_same_product_and_does_not_overflow(dtype: torch.dtype) -> None:
    x, packed = inputs(300, 256, dtype) * 200, weight(256, 72)
    with live_memory(x, packed.codes, packed.scales) as memory:
        found = fp8_matmul(x, packed)
    assert relative_error(found, exact_product(x, packed)) < TOLERANCES[dtype]
    assert memory.peak_bytes == found.nbytes + product_bytes(
        num_rows=300, in_features=256, out_features=72, itemsize=2, has_kernel=True
    )


def test_quantized_weights_are_near_and_never_past_the_largest_code() -> None:
    exact = torch.randn(8, 256, generator=torch.Generator().manual_seed(0))
    exact[3] = 0.0
    exact[4, 7] = 1e4
    packed = quantize_fp8_weight(exact)
    assert torch.isfinite(packed.codes.float()).all()
    assert float(packed.codes.float().abs().max()) == 448.0
    back = packed.codes.float() * packed.scales[:, None]
    assert (back[3] == 0).all()
    assert relative_error(back[:3], exact[:3]) < 0.03


def test_no_rows_give_no_rows() -> None:
    assert fp8_matmul(inputs(0, 128), weight(128, 64)).shape == (0, 64)


X, WEIGHT = inputs(2, 256), weight(256, 64)


@pytest.mark.parametrize(
    ("x", "packed", "named"),
    [
        (X.float(), WEIGHT, "x.dtype"),
        (X[:, :128], WEIGHT, r"x.shape=\(2, 128\): must be \(any, 256\)"),
        (X, dataclasses.replace(WEIGHT, codes=WEIGHT.codes.float()), "codes.dtype"),
        (X[:, :250], weight(250, 8), r"codes.shape\[1\]=250: must be a multiple of 16"),
        (X, dataclasses.replace(WEIGHT, codes=weight(512, 64).codes[:, :256]), "codes.stride"),
        (X, dataclasses.replace(WEIGHT, scales=WEIGHT.scales[:9]), "scales.shape"),
        (X, dataclasses.replace(WEIGHT, scales=WEIGHT.scales.half()), "scales.dtype"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    x: torch.Tensor, packed: Fp8Weight, named: str
) -> None:
    for function in (fp8_matmul, fp8_matmul_reference):
        with pytest.raises(ArgumentError, match=named):
            function(x, packed)


def test_a_gpu_without_fp8_is_refused_with_what_works() -> None:
    check_fp8_device(89)
    with pytest.raises(ArgumentError, match="sm_80.: must be sm_89 or newer; int4 weights work"):
        check_fp8_device(80)
