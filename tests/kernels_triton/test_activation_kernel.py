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

ROWS = torch.ones(2, 8)
TOLERANCES = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 4e-3}


def rows(num_rows: int, width: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Gates and what they open, as parts of wider rows and of rows of another stride."""
    generator = torch.Generator().manual_seed(width)
    gate = (torch.randn(num_rows, width + 6, generator=generator) * 4).to(dtype)[:, :width]
    up = (torch.randn(num_rows, 2 * width, generator=generator) * 4).to(dtype)[:, width:]
    return gate, up


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("shape", [(40, 1), (3, 23), (5, 768), (2, 4 * 1024), (2, 4500)], ids=str)
def test_the_gate_opens_what_is_beside_it(shape: tuple[int, int], dtype: torch.dtype) -> None:
    gate, up = rows(*shape, dtype)
    found = silu_mul(gate, up)
    assert relative_error(found, F.silu(gate.double()) * up.double()) < TOLERANCES[dtype]
    reference = silu_mul_reference(gate, up)
    assert relative_error(found, reference) < TOLERANCES[dtype]
    assert float((found != reference).float().mean()) < (1.0 if dtype is torch.float32 else 1e-2)


def test_gates_far_from_zero_are_shut_or_open() -> None:
    gate = torch.tensor([[-1e30, -200.0, 0.0, 200.0]])
    assert silu_mul(gate, torch.ones(1, 4)).tolist() == [[0.0, 0.0, 0.0, 200.0]]


@pytest.mark.parametrize("shape", [(0, 64), (3, 0)])
def test_nothing_in_gives_nothing_out(shape: tuple[int, int]) -> None:
    assert silu_mul(torch.empty(shape), torch.empty(shape)).shape == shape


@pytest.mark.parametrize(
    ("gate", "up", "named"),
    [
        (ROWS, ROWS[:, :4], r"up.shape=\(2, 4\): must be \(2, 8\)"),
        (ROWS[None], ROWS, "gate.shape="),
        (ROWS.double(), ROWS, "gate.dtype=torch.float64"),
        (ROWS, ROWS.half(), "up.dtype=torch.float16: must be torch.float32"),
        (torch.ones(8, 2).T, ROWS, r"gate.stride\(-1\)=2: must be 1"),
        (ROWS, torch.ones(8, 2).T, r"up.stride\(-1\)=2: must be 1"),
        (ROWS, ROWS.to("meta"), "up.device=.*meta.*: must be cpu"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    gate: torch.Tensor, up: torch.Tensor, named: str
) -> None:
    for function in (silu_mul, silu_mul_reference):
        with pytest.raises(ArgumentError, match=named):
            function(gate, up)
