"""Rows as codes and scales: nearest codes, rounding, saturation, extreme and broken rows.

Covered: int8, e4m3, 4 bits in groups, and the rotation of the 4-bit mode.
"""

import pytest
import torch

from pagefleet_kernels.kv_pool import FP8, CachePart
from pagefleet_kernels.rotation import rotate
from pagefleet_kernels.row_codes import (
    INT4_SMALLEST_SCALE,
    decode_rows,
    encode_rows,
    quantize_fp8,
    quantize_int4,
    quantize_int8,
)

QUANTIZED = ("int8", "fp8_e4m3", "int4")


def through(rows: torch.Tensor, row_format: str) -> torch.Tensor:
    """What is read of rows that were stored."""
    codes, scales = encode_rows(rows, row_format)
    assert scales is not None
    part = CachePart(row_format, rows.shape[-1], codes, scales)
    return decode_rows(part, codes, scales)


def random_rows(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_int8_rows_are_rounded_to_the_nearest_of_their_own_scale() -> None:
    rows = random_rows(50, 3, 64) * 3
    rows[7, :, 5] = 200.0  # an outlier costs its own row and no other
    codes, scales = quantize_int8(rows)
    torch.testing.assert_close(scales.double(), rows.double().abs().amax(-1) / 127)
    error = (codes.double() * scales.double()[..., None] - rows.double()).abs()
    # half a step, and what fp32 division may round beyond it
    assert (error <= scales.double()[..., None] * (0.5 + 1e-5)).all()
    assert codes.abs().amax() == 127 and (codes.abs().amax(-1) == 127).all()


def test_halves_go_to_the_even_code() -> None:
    row = torch.tensor([127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5])
    assert quantize_int8(row)[0].tolist() == [127, 0, 2, 2, 0, -2, -2, 126]
    row = torch.tensor([0.0, 0.5, 1.5, 2.5, 15.0, 13.5, 14.5, 7.0])
    codes, scales = quantize_int4(row)
    assert scales.tolist() == [[1.0, 0.0]]
    low, high = [0, 0, 2, 2], [15, 14, 14, 7]
    assert codes.tolist() == [a + 16 * b for a, b in zip(low, high, strict=True)]


def test_fp8_is_the_nearest_value_of_a_row_and_uses_the_whole_range() -> None:
    every = torch.arange(256, dtype=torch.uint8).view(FP8).double()
    every = every[every.isfinite()]
    rows = random_rows(40, 64) * 100
    codes, scales = quantize_fp8(rows)
    assert (codes.float().abs().amax(-1) == 448).all()
    exact = rows.double() / scales.double()[:, None]
    best = (every[None, None] - exact[..., None]).abs().amin(-1)
    # what fp32 division rounds can decide a tie between two codes
    torch.testing.assert_close((codes.double() - exact).abs(), best, atol=1e-4, rtol=0)


def test_int4_groups_are_rounded_to_the_nearest_of_their_stored_steps() -> None:
    rows = random_rows(50, 2, 96)
    rows[7, :, 40] = 90.0  # costs its own group of 32 and no other
    _, scales = quantize_int4(rows)
    step = scales[..., 0].double().repeat_interleave(32, dim=-1)
    error = (through(rows, "int4").double() - rows.double()).abs()
    # half a step; float16 rounds a group's minimum and its 15 steps by up to 2^-11 each
    rounding = rows.double().abs().amax(-1, keepdim=True) * 2.0**-10
    assert (error <= step * 0.5 + rounding).all()
    assert scales.shape == (50, 2, 3, 2)


@pytest.mark.parametrize("width", [4, 8, 80, 96, 128])
def test_int4_packs_the_first_half_low_and_the_second_half_high(width: int) -> None:
    values = torch.arange(width) % 16
    packed = torch.tensor([[int(v) for v in values]], dtype=torch.float32)
    group = min(32, width & -width)
    packed[:, ::group], packed[:, group - 1 :: group] = 0, 15  # each group has steps of 1
    codes, _ = quantize_int4(packed)
    assert torch.equal(codes & 15, packed[:, : width // 2].to(torch.uint8))
    assert torch.equal(codes >> 4, packed[:, width // 2 :].to(torch.uint8))
    assert torch.equal(through(packed, "int4"), packed)


@pytest.mark.parametrize("magnitude", [0.0, 1e-42, 1e-9, 1e30, 3e38])
@pytest.mark.parametrize("row_format", ["int8", "fp8_e4m3"])
def test_extreme_rows_stay_finite_and_zero_stays_zero(magnitude: float, row_format: str) -> None:
    back = through(torch.full((1, 8), magnitude), row_format)
    torch.testing.assert_close(back, torch.full((1, 8), magnitude), atol=1e-8, rtol=1e-5)


@pytest.mark.parametrize("value", [0.0, 1e-9, 0.3, -4.0, 60000.0])
def test_a_group_of_equal_values_keeps_them_to_half_precision(value: float) -> None:
    rows = torch.full((2, 64), value)
    _, scales = quantize_int4(rows)
    assert (scales[..., 0] == INT4_SMALLEST_SCALE).all()
    torch.testing.assert_close(through(rows, "int4"), rows, atol=1e-6, rtol=2.0**-11)


@pytest.mark.parametrize("row_format", QUANTIZED)
@pytest.mark.parametrize("broken", [float("nan"), float("inf"), float("-inf")])
def test_a_broken_value_breaks_its_row(row_format: str, broken: float) -> None:
    rows = random_rows(3, 64)
    rows[1, 5] = broken
    back = through(rows, row_format)
    assert not back[1].isfinite().all()
    assert back[[0, 2]].isfinite().all()


def test_a_group_beyond_float16_is_not_stored_as_a_wrong_number() -> None:
    rows = torch.zeros(1, 64)
    rows[0, 3] = 2e6
    assert not through(rows, "int4")[0, :32].isfinite().any()


@pytest.mark.parametrize("group", [2, 4, 16, 32])
def test_rotation_is_by_a_symmetric_orthonormal_matrix_of_its_group(group: int) -> None:
    matrix = rotate(torch.eye(group), group).double()
    torch.testing.assert_close(matrix, matrix.T)
    torch.testing.assert_close(matrix @ matrix, torch.eye(group).double(), atol=1e-6, rtol=0)
    assert torch.equal(matrix.abs(), matrix.abs()[0, 0].expand(group, group))
    rows = random_rows(5, 3 * group)
    expected = (rows.double().view(5, 3, group) @ matrix).flatten(-2)
    torch.testing.assert_close(rotate(rows, group).double(), expected, atol=1e-5, rtol=1e-5)


def test_rotated_rows_do_not_depend_on_their_batch() -> None:
    rows = random_rows(33, 2, 96)
    alone = torch.cat([rotate(row[None], 32) for row in rows])
    assert torch.equal(alone, rotate(rows, 32))


def test_rotation_spreads_an_outlier_so_that_4_bits_hold_the_rest_better() -> None:
    rows = random_rows(200, 128)
    rows[:, 9] *= 20
    plain = (through(rows, "int4") - rows).norm()
    rotated = (rotate(through(rotate(rows, 32), "int4"), 32) - rows).norm()
    assert rotated < 0.8 * plain
