"""RMSNorm in the interpreter against its reference and float64.

Covered: widths that do not fill a block, several rows a program, strided rows, both castings, three
number formats, extreme rows, no rows, refusals. Left out: speed.
"""

import pytest
import torch

from pagefleet_kernels.errors import ArgumentError
from pagefleet_kernels.gpu.norm import add_rms_norm, norm_launch, rms_norm
from pagefleet_kernels.norm import (
    CASTINGS,
    LARGEST_WIDTH,
    Casting,
    add_rms_norm_reference,
    rms_norm_reference,
)
from tests.support.kernel_error import relative_error

TOLERANCES = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 4e-3}
SHAPES = [(1, 1), (3, 64), (5, 80), (17, 576), (2, 2048), (3, 2880), (2, 8192)]


def rows(num_rows: int, width: int, dtype: torch.dtype, *, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    wide = torch.randn(num_rows, width + 8, generator=generator) * 3
    return wide.to(dtype)[:, :width]  # strided


def exact_norm(x: torch.Tensor, weight: torch.Tensor, casting: Casting) -> torch.Tensor:
    exact = x.double()
    scaled = exact / (exact.square().mean(dim=1, keepdim=True) + 1e-6).sqrt()
    return scaled * (weight.double() + (1 if casting == "gemma" else 0))


@pytest.mark.parametrize("casting", CASTINGS)
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_are_normalized(shape: tuple[int, int], dtype: torch.dtype, casting: Casting) -> None:
    x, residual = rows(*shape, dtype, seed=1), rows(*shape, dtype, seed=2)
    weight = rows(1, shape[1], dtype, seed=3)[0]
    alone = rms_norm(x, weight, eps=1e-6, casting=casting)
    assert relative_error(alone, exact_norm(x, weight, casting)) < TOLERANCES[dtype]
    both = add_rms_norm(x, residual, weight, eps=1e-6, casting=casting)
    reference = add_rms_norm_reference(x, residual, weight, eps=1e-6, casting=casting)
    assert torch.equal(both.summed, reference.summed)
    exact = exact_norm(reference.summed, weight, casting)
    assert relative_error(both.normed, exact) < TOLERANCES[dtype]
    assert relative_error(both.normed, reference.normed) < TOLERANCES[dtype]


@pytest.mark.parametrize("casting", CASTINGS)
def test_bf16_results_are_the_references_but_for_single_roundings(casting: Casting) -> None:
    x = rows(64, 512, torch.bfloat16, seed=4)
    weight = rows(1, 512, torch.bfloat16, seed=5)[0]
    found = rms_norm(x, weight, eps=1e-6, casting=casting)
    wanted = rms_norm_reference(x, weight, eps=1e-6, casting=casting)
    assert float((found != wanted).float().mean()) < 1e-3


def test_rows_of_zeros_and_of_large_numbers_stay_finite() -> None:
    x = torch.zeros(3, 128)
    x[1], x[2, 5] = 1e15, -3e18
    found = rms_norm(x, torch.ones(128), eps=1e-6)
    assert relative_error(found, exact_norm(x, torch.ones(128), "llama")) < 1e-6


def test_no_rows_give_no_rows() -> None:
    made = add_rms_norm(torch.empty(0, 64), torch.empty(0, 64), torch.ones(64), eps=1e-6)
    assert made.normed.shape == made.summed.shape == (0, 64)


@pytest.mark.parametrize("width", [1, 64, 576, 4096, 8192, LARGEST_WIDTH])
def test_a_launch_covers_the_row_and_spares_registers(width: int) -> None:
    launch = norm_launch(width)
    assert launch.block >= width
    assert launch.block * launch.rows / (launch.num_warps * 32) <= 64
    assert launch.rows == 1 or launch.block * launch.rows <= 2048


X, W = torch.ones(2, 64), torch.ones(64)


@pytest.mark.parametrize(
    ("x", "residual", "weight", "named"),
    [
        (X[0], X, W, "x.shape="),
        (X.int(), X, W, "x.dtype=torch.int32: must be torch.bfloat16 or torch.float16"),
        (X.T.contiguous().T, X, W, r"x.stride\(-1\)=2: must be 1"),
        (X, X[:1], W, r"residual.shape=\(1, 64\): must be \(2, 64\)"),
        (X, X.half(), W, "residual.dtype"),
        (X, X, W[:32], r"weight.shape=\(32,\): must be \(64\)"),
        (X, X, W.bfloat16(), "weight.dtype"),
        (X.to("meta"), X, W, "weight.device=.*cpu.*: must be meta"),
        (X, X.to("meta"), W, "residual.device"),
        (torch.ones(1, LARGEST_WIDTH + 1), X, W, r"x.shape\[1\]=32769"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, named: str
) -> None:
    for function in (add_rms_norm, add_rms_norm_reference):
        with pytest.raises(ArgumentError, match=named):
            function(x, residual, weight, eps=1e-6)


def test_casting_and_eps_are_checked() -> None:
    with pytest.raises(ArgumentError, match="eps=0: must be above 0"):
        rms_norm(X, W, eps=0)
    with pytest.raises(ArgumentError, match="casting='gpt': must be llama or gemma"):
        rms_norm(X, W, eps=1e-6, casting="gpt")  # type: ignore[arg-type]
