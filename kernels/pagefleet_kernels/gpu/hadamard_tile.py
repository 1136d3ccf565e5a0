"""Rotate rows that lie in two halves by the block-diagonal Hadamard matrix (rotation.py)."""

import triton
import triton.language as tl


@triton.jit
def rotate_halves(
    low,  # [rows, PADDED] elements 0 .. HALF, zero where padded
    high,  # [rows, PADDED] elements HALF .. 2 * HALF
    HALF: tl.constexpr,
    PADDED: tl.constexpr,
    INT4_GROUP: tl.constexpr,
):
    """Both halves with every group rotated, in float32; what padding holds is arbitrary."""
    if HALF % INT4_GROUP == 0:
        rotated_low = rotate_half(low, INT4_GROUP)
        rotated_high = rotate_half(high, INT4_GROUP)
    else:  # a group lies across the middle of a row
        to_low = hadamard(0, 0, PADDED, INT4_GROUP).to(low.dtype)
        rotated_low = tl.dot(low, to_low, input_precision="ieee")
        to_low = hadamard(HALF, 0, PADDED, INT4_GROUP).to(low.dtype)
        rotated_low = tl.dot(high, to_low, rotated_low, input_precision="ieee")
        to_high = hadamard(0, HALF, PADDED, INT4_GROUP).to(low.dtype)
        rotated_high = tl.dot(low, to_high, input_precision="ieee")
        to_high = hadamard(HALF, HALF, PADDED, INT4_GROUP).to(low.dtype)
        rotated_high = tl.dot(high, to_high, rotated_high, input_precision="ieee")
        scale: tl.constexpr = INT4_GROUP**-0.5
        rotated_low = rotated_low * scale
        rotated_high = rotated_high * scale
    return rotated_low, rotated_high


@triton.jit
def rotate_half(
    rows,  # [rows, PADDED]: a half of whole groups
    INT4_GROUP: tl.constexpr,
):
    """One half that holds whole groups, with each of them rotated, in float32."""
    GROUPS: tl.constexpr = rows.shape[0] * rows.shape[1] // INT4_GROUP
    matrix = hadamard(0, 0, INT4_GROUP, INT4_GROUP).to(rows.dtype)
    scale: tl.constexpr = INT4_GROUP**-0.5
    rotated = tl.dot(tl.reshape(rows, [GROUPS, INT4_GROUP]), matrix, input_precision="ieee")
    return tl.reshape(rotated, rows.shape) * scale


@triton.jit
def hadamard(first_row, first_column, SIZE: tl.constexpr, INT4_GROUP: tl.constexpr):
    """Part of the matrix, [SIZE, SIZE] of 1, -1 and 0: the sign is the parity of row & column."""
    row = first_row + tl.arange(0, SIZE)[:, None]
    column = first_column + tl.arange(0, SIZE)[None, :]
    parity = row & column & (INT4_GROUP - 1)
    parity = parity ^ (parity >> 4)
    parity = parity ^ (parity >> 2)
    parity = (parity ^ (parity >> 1)) & 1
    sign = tl.where(parity == 1, -1.0, 1.0)
    return tl.where(row // INT4_GROUP == column // INT4_GROUP, sign, 0.0)
