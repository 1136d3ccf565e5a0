"""Rows as stored codes with their scales, in Triton: the same bits as row_codes.py."""

import triton
import triton.language as tl


@triton.jit
def store_plain(rows, codes_ptr, offsets, is_row, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    column = tl.arange(0, PADDED)
    tl.store(
        codes_ptr + offsets[:, None] + column[None, :],
        rows.to(codes_ptr.dtype.element_ty),
        mask=is_row[:, None] & (column < WIDTH)[None, :],
    )


@triton.jit
def store_scaled(
    rows,  # [rows, PADDED] float32, zero beyond WIDTH
    codes_ptr,
    offsets,
    scales_ptr,
    scale_offsets,
    is_row,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    FORMAT: tl.constexpr,  # "int8" or "fp8_e4m3"
):
    """Codes of 8 bits and one float32 scale a row."""
    LARGEST: tl.constexpr = 127.0 if FORMAT == "int8" else 448.0
    scales = tl.maximum(tl.div_rn(tl.max(tl.abs(rows), 1), LARGEST), 1e-8)
    scales = tl.where(has_nan(rows, 1), float("nan"), scales)
    # Not by a reciprocal: that would round twice, and differ from the reference.
    exact = clamped(
        tl.div_rn(rows, tl.broadcast_to(scales[:, None], rows.shape)), -LARGEST, LARGEST
    )
    if FORMAT == "int8":
        codes = nearest(exact).to(tl.int8)
    else:
        codes = exact.to(codes_ptr.dtype.element_ty)
    store_plain(codes, codes_ptr, offsets, is_row, WIDTH, PADDED)
    tl.store(scales_ptr + scale_offsets, scales, mask=is_row)


@triton.jit
def store_int4(
    rows,  # [rows, PADDED] float32, zero beyond WIDTH
    codes_ptr,
    offsets,
    scales_ptr,  # int32: float16 scale in the low half, float16 minimum in the high half
    scale_offsets,
    is_row,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    INT4_GROUP: tl.constexpr,
):
    """Two codes a byte, of elements i and i + WIDTH / 2, and a scale and a minimum a group."""
    ROWS: tl.constexpr = rows.shape[0]
    GROUPS: tl.constexpr = PADDED // INT4_GROUP
    HALF: tl.constexpr = WIDTH // 2
    HALF_PADDED: tl.constexpr = PADDED // 2
    grouped = tl.reshape(rows, [ROWS, GROUPS, INT4_GROUP])
    lowest = tl.min(grouped, 2)
    steps = tl.maximum(tl.div_rn(tl.max(grouped, 2) - lowest, 15.0), 5.9604644775390625e-08)
    steps = tl.where(has_nan(grouped, 2), float("nan"), steps).to(tl.float16)
    minimum = lowest.to(tl.float16)
    # Codes are those of the scale and the minimum as they are stored.
    exact = tl.div_rn(
        grouped - minimum.to(tl.float32)[:, :, None],
        tl.broadcast_to(steps.to(tl.float32)[:, :, None], grouped.shape),
    )
    codes = tl.reshape(nearest(clamped(exact, 0.0, 15.0)).to(tl.int32), [ROWS, PADDED])
    column = tl.arange(0, HALF_PADDED)
    picked = tl.broadcast_to(column[None, :], [ROWS, HALF_PADDED])
    low = tl.gather(codes, picked, 1)
    high = tl.gather(codes, tl.minimum(picked + HALF, PADDED - 1), 1)
    store_plain(low | (high << 4), codes_ptr, offsets, is_row, HALF, HALF_PADDED)
    both = steps.to(tl.uint16, bitcast=True).to(tl.uint32)
    both = both | (minimum.to(tl.uint16, bitcast=True).to(tl.uint32) << 16)
    store_plain(both, scales_ptr, scale_offsets, is_row, WIDTH // INT4_GROUP, GROUPS)


@triton.jit
def rotate_rows(rows, INT4_GROUP: tl.constexpr):
    """Every group of [rows, PADDED] times its Hadamard matrix, in the reference's order of sums."""
    column = tl.broadcast_to(tl.arange(0, rows.shape[1])[None, :], rows.shape)
    for distance in tl.static_range(1, INT4_GROUP):
        if distance & (distance - 1) == 0:
            other = tl.gather(rows, column ^ distance, 1)
            rows = tl.where(column & distance == 0, rows + other, other - rows)
    return rows * INT4_GROUP**-0.5


@triton.jit
def has_nan(rows, AXIS: tl.constexpr):
    """Maxima and minima ignore not-a-number, which must not be lost."""
    return tl.sum((rows != rows).to(tl.int32), AXIS) > 0


@triton.jit
def clamped(values, LOWEST: tl.constexpr, HIGHEST: tl.constexpr):
    """Within the bounds; not-a-number becomes zero, its scale tells."""
    values = tl.where(values == values, values, 0.0)
    return tl.minimum(tl.maximum(values, LOWEST), HIGHEST)


@triton.jit
def nearest(values):
    """The nearest integer, half to even, of values up to 2 ** 22.

    A conversion would cut off instead. Near 3 * 2 ** 22 float32 has no fraction left.
    """
    return (values + 12582912.0) - 12582912.0
