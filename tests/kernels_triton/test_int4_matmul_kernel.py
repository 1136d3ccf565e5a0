"""int4 matrix products in the interpreter against the dequantized weight in float64.

Covered: AWQ's packing, parts of the sum, rows and outputs that do not fill tiles, both number
formats, a large batch, strided rows, the launch, refusals. Left out: speed.
"""

import dataclasses

import pytest
import torch

from pagefleet_kernels.errors import ArgumentError
from pagefleet_kernels.gpu.int4_matmul import TILE, int4_matmul, unpack_int4
from pagefleet_kernels.gpu.split_k import matmul_launch
from pagefleet_kernels.int4_matmul import (
    AWQ_NIBBLES,
    Int4Weight,
    dequantize_int4,
    int4_matmul_reference,
    pack_int4,
    repack_awq,
    repack_gptq,
)
from pagefleet_kernels.unpacking import product_bytes
from tests.support.kernel_error import relative_error

TOLERANCES = {torch.float16: 2e-3, torch.bfloat16: 6e-3}


def weight(
    in_features: int, out_features: int, dtype: torch.dtype = torch.bfloat16, *, group: int = 128
) -> Int4Weight:
    generator = torch.Generator().manual_seed(in_features + out_features)
    groups = (in_features // group, out_features)
    codes = torch.randint(0, 16, (in_features, out_features), generator=generator)
    scales = (torch.rand(groups, generator=generator) * 0.02 + 0.001).to(dtype)
    zeros = torch.randint(0, 16, groups, generator=generator)
    return pack_int4(codes, scales, zeros)


def inputs(num_rows: int, width: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    generator = torch.Generator().manual_seed(num_rows)
    wide = torch.randn(num_rows, width + 16, generator=generator) + 0.5  # zeros matter then
    return wide.to(dtype)[:, :width]


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize(
    "shape", [(1, 128, 64), (3, 512, 72), (17, 1280, 130), (40, 256, 200), (80, 384, 96)], ids=str
)
def test_products_are_those_of_the_dequantized_weight(
    shape: tuple[int, int, int], dtype: torch.dtype
) -> None:
    num_rows, in_features, out_features = shape
    x, packed = inputs(num_rows, in_features, dtype), weight(in_features, out_features, dtype)
    exact = x.double() @ dequantize_int4(packed).double().T
    assert relative_error(int4_matmul(x, packed), exact) < TOLERANCES[dtype]
    assert relative_error(int4_matmul_reference(x, packed), exact) < TOLERANCES[dtype]


@pytest.mark.parametrize("group", [32, 64])
def test_smaller_groups_and_weights_without_zeros_of_their_own(group: int) -> None:
    x, packed = inputs(3, 256), weight(256, 72, group=group)
    for each in (packed, dataclasses.replace(packed, zeros=None)):
        assert each.in_features == 256
        exact = x.double() @ dequantize_int4(each).double().T
        assert relative_error(int4_matmul(x, each), exact) < TOLERANCES[torch.bfloat16]
        unpacked = unpack_int4(each, dtype=torch.bfloat16)
        assert torch.equal(unpacked, dequantize_int4(each).bfloat16())


def test_a_large_batch_is_multiplied_by_the_unpacked_weight() -> None:
    x, packed = inputs(300, 256), weight(256, 72)
    exact = x.double() @ dequantize_int4(packed).double().T
    assert relative_error(int4_matmul(x, packed), exact) < TOLERANCES[torch.bfloat16]
    unpacked = unpack_int4(packed, dtype=torch.bfloat16)
    assert torch.equal(unpacked, dequantize_int4(packed).bfloat16())
    assert unpacked.nbytes == product_bytes(
        num_rows=300, in_features=256, out_features=72, itemsize=2, has_kernel=True
    )


def test_awqs_tensors_are_repacked_to_the_same_weight() -> None:
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 16, (256, 16), generator=generator)
    zeros = torch.randint(0, 16, (2, 16), generator=generator)
    scales = torch.rand(2, 16, generator=generator).half()

    def awq(numbers: torch.Tensor) -> torch.Tensor:
        eights = numbers.view(numbers.shape[0], -1, 8)
        words = sum(eights[:, :, j] << (4 * nibble) for j, nibble in enumerate(AWQ_NIBBLES))
        assert isinstance(words, torch.Tensor)
        return words.to(torch.int32)

    packed = repack_awq(awq(codes), awq(zeros), scales)
    wide = [each.repeat_interleave(128, dim=0).float() for each in (zeros, scales)]
    assert torch.equal(dequantize_int4(packed), ((codes - wide[0]) * wide[1]).T)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("zeros_less_one", [True, False])
def test_gptqs_tensors_are_repacked_to_the_same_weight(
    symmetric: bool, zeros_less_one: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 16, (256, 16), generator=generator)
    zeros = torch.randint(0, 16, (4, 16), generator=generator)
    zeros = torch.full_like(zeros, 8) if symmetric else zeros
    scales = torch.rand(4, 16, generator=generator).half()

    def gptq(numbers: torch.Tensor) -> torch.Tensor:  # eight neighbours of the last dimension
        eights = numbers.view(numbers.shape[0], -1, 8)
        words = sum(eights[:, :, j] << (4 * j) for j in range(8))
        assert isinstance(words, torch.Tensor)
        return words.to(torch.int32)

    stored = (zeros - 1) & 0xF if zeros_less_one else zeros
    qweight = gptq(codes.T.contiguous()).T.contiguous()
    packed = repack_gptq(qweight, gptq(stored), scales, zeros_less_one=zeros_less_one)
    assert (packed.zeros is None) == symmetric
    wide = [each.repeat_interleave(64, dim=0).float() for each in (zeros, scales)]
    assert torch.equal(dequantize_int4(packed), ((codes - wide[0]) * wide[1]).T)


def test_no_rows_give_no_rows() -> None:
    assert int4_matmul(inputs(0, 128), weight(128, 64)).shape == (0, 64)


@pytest.mark.parametrize("num_rows", [1, 8, 16, 64, 255])
@pytest.mark.parametrize(("k", "n"), [(4096, 4096), (4096, 14336), (14336, 4096), (128, 64)])
def test_a_launch_covers_the_product_and_keeps_a_gpu_busy(num_rows: int, k: int, n: int) -> None:
    launch = matmul_launch(
        TILE, num_rows=num_rows, in_features=k, out_features=n, num_processors=132
    )
    grid = launch.grid(num_rows=num_rows, out_features=n)
    assert grid[0] * launch.block_n >= n and grid[1] * launch.block_m >= num_rows
    assert launch.parts == 1 or launch.parts * 2 * 128 <= k
    if k > 128:
        assert grid[0] * grid[1] * grid[2] >= 132


X, WEIGHT = inputs(2, 256), weight(256, 64)


@pytest.mark.parametrize(
    ("x", "packed", "named"),
    [
        (X.float(), WEIGHT, "x.dtype"),
        (X[:, :128], WEIGHT, r"x.shape=\(2, 128\): must be \(any, 256\)"),
        (X.to("meta"), WEIGHT, "codes.device"),
        (inputs(256, 2).T, WEIGHT, r"x.stride\(-1\)"),
        (X, dataclasses.replace(WEIGHT, codes=WEIGHT.codes.int()), "codes.dtype"),
        (X, dataclasses.replace(WEIGHT, codes=WEIGHT.codes[:, :, :24]), "codes.shape"),
        (X, dataclasses.replace(WEIGHT, scales=WEIGHT.scales[:1]), "scales.shape"),
        (X, dataclasses.replace(WEIGHT, zeros=WEIGHT.scales[:, ::2]), "zeros.dtype"),
        (X, dataclasses.replace(weight(256, 128), codes=weight(256, 128).codes[:, ::2]), "scales"),
        (X.half(), WEIGHT, "scales.dtype=torch.bfloat16: must be torch.float16"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    x: torch.Tensor, packed: Int4Weight, named: str
) -> None:
    for function in (int4_matmul, int4_matmul_reference):
        with pytest.raises(ArgumentError, match=named):
            function(x, packed)


def test_tensors_that_are_no_whole_groups_are_refused() -> None:
    words = torch.zeros(192, 8, dtype=torch.int32)
    with pytest.raises(ArgumentError, match=r"codes, scales=\(192, 1\): must be a number of"):
        repack_awq(words, words[:1], torch.ones(1, 64).half())
    with pytest.raises(ArgumentError, match=r"qzeros.shape=\(4, 8\): must be \(2, 8\)"):
        repack_awq(torch.zeros(256, 8, dtype=torch.int32), words[:4], torch.ones(2, 64).half())
