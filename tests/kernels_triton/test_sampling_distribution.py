"""How often the kernels' own arithmetic draws a token, in the interpreter.

The interpreter takes too long for a program per row, so here one program scores many rows, with the
function that the kernel of the draw scores its chunk with. That this kernel gives the tokens of the
reference is tested in test_sampling_kernel.py.
"""

import pytest
import torch
import triton
import triton.language as tl

from bench.gpu import distribution
from pagefleet_kernels.gpu.sampling import find_thresholds, perturbed
from pagefleet_kernels.sampling import SamplingRows, sample_reference

ROWS = 4096  # of one program
DRAWS = 25 * ROWS


@triton.jit
def draw_rows_kernel(
    logits, thresholds, temperatures, seeds, positions, tokens, WIDTH: tl.constexpr, R: tl.constexpr
):
    row = tl.program_id(0) * R + tl.arange(0, R)
    token = (row * 0)[:, None] + tl.arange(0, WIDTH)[None, :]
    score = perturbed(
        tl.load(logits + token),
        tl.load(thresholds + row)[:, None],
        tl.load(temperatures + row)[:, None],
        tl.load(seeds + row)[:, None],
        tl.load(positions + row)[:, None],
        token,
    )
    tl.store(tokens + row, tl.argmax(score, axis=1).to(tl.int64))


def draw(logits: torch.Tensor, rows: SamplingRows) -> torch.Tensor:
    """Tokens at multiples of STEP are the whole vocabulary; all rows share their logits."""
    device = logits.device
    few = logits[0, :: distribution.STEP]
    dense = torch.full((1, triton.next_power_of_2(len(few))), -torch.inf)
    dense[0, : len(few)] = few
    first = distribution.same_rows(
        1,
        device,
        temperature=float(rows.temperature[0]),
        top_k=int(rows.top_k[0]),
        top_p=float(rows.top_p[0]),
        min_p=float(rows.min_p[0]),
    )
    thresholds = find_thresholds(dense, first).expand(logits.shape[0]).contiguous()
    tokens = torch.empty(logits.shape[0], dtype=torch.int64)
    draw_rows_kernel[(logits.shape[0] // ROWS,)](
        dense, thresholds, rows.temperature, rows.seeds, rows.positions, tokens,
        WIDTH=dense.shape[1], R=ROWS,
    )  # fmt: skip
    return tokens * distribution.STEP


@pytest.mark.parametrize("name", distribution.SETTINGS)
def test_tokens_are_drawn_as_often_as_their_probability_says(name: str) -> None:
    asked = distribution.SETTINGS[name]
    p = distribution.draws_p(draw, torch.device("cpu"), count=DRAWS, **asked)
    assert p > distribution.LEAST_P


def test_a_draw_that_leans_a_little_is_found() -> None:
    def lean(logits: torch.Tensor, rows: SamplingRows) -> torch.Tensor:
        rows.temperature.mul_(0.9)
        return draw(logits, rows)

    assert distribution.draws_p(lean, torch.device("cpu"), count=DRAWS) < 1e-9


def test_what_is_measured_on_a_gpu_can_be_drawn() -> None:
    few = distribution.draws_p(sample_reference, torch.device("cpu"), count=200, top_p=0.8)
    assert few > distribution.LEAST_P
