"""SiLU-mul in the interpreter against its reference and float64.

Covered: widths that do not fill a block or need several, strided rows, extreme gates, refusals.
Left out: speed.
"""

import pytest
import torch
import torch.nn.functional as F

from pagefleet_kernels.activation import silu_mul_reference
from pagefleet_kernels.errors import ArgumentError
from pagefleet_kernels.gpu.activation import silu_mul
from tests.support.kernel_error import relative_error

TOLERANCES = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 4e-3}


def rows(num_rows: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(width)
    return (torch.randn(num_rows, width + 6, generator=generator) * 4).to(dtype)[:, :width]


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("shape", [(40, 2), (3, 46), (5, 1536), (2, 8 * 1024), (2, 9000)], ids=str)
def test_the_gate_opens_the_other_half(shape: tuple[int, int], dtype: torch.dtype) -> None:
    gate_up = rows(*shape, dtype)
    found = silu_mul(gate_up)
    gate, up = gate_up.double().chunk(2, dim=1)
    assert relative_error(found, F.silu(gate) * up) < TOLERANCES[dtype]
    reference = silu_mul_reference(gate_up)
    assert relative_error(found, reference) < TOLERANCES[dtype]
    assert float((found != reference).float().mean()) < (1.0 if dtype is torch.float32 else 1e-2)


def test_gates_far_from_zero_are_shut_or_open() -> None:
    gate_up = torch.tensor([[-1e30, -200.0, 0.0, 200.0, 1.0, 1.0, 1.0, 1.0]])
    assert silu_mul(gate_up).tolist() == [[0.0, 0.0, 0.0, 200.0]]


@pytest.mark.parametrize("shape", [(0, 64), (3, 0)])
def test_nothing_in_gives_nothing_out(shape: tuple[int, int]) -> None:
    assert silu_mul(torch.empty(shape)).shape == (shape[0], shape[1] // 2)


@pytest.mark.parametrize(
    ("gate_up", "named"),
    [
        (torch.ones(2, 7), r"gate_up.shape\[1\]=7: must be gate and up, so even"),
        (torch.ones(2, 2, 4), "gate_up.shape="),
        (torch.ones(2, 8, dtype=torch.float64), "gate_up.dtype=torch.float64"),
        (torch.ones(8, 2).T, r"gate_up.stride\(-1\)=2: must be 1"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(gate_up: torch.Tensor, named: str) -> None:
    for function in (silu_mul, silu_mul_reference):
        with pytest.raises(ArgumentError, match=named):
            function(gate_up)
