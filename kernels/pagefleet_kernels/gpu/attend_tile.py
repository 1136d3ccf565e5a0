"""One tile of keys and values, taken into the running softmax of a program's rows."""

import triton
import triton.language as tl

from pagefleet_kernels.gpu.cache_tile import (
    load_e4m3_pairs,
    load_int4,
    load_int8,
    load_rows,
    load_scales,
    number_type,
)


@triton.jit
def attend_tile(
    row_max,  # [BLOCK_M] of the scores so far
    row_sum,  # [BLOCK_M] of 2 ** (score - row_max)
    out_low,  # [BLOCK_M, V_PADDED] weighted values, not yet divided by row_sum
    out_high,  # the same of the other half of a row, where a tile comes in halves
    query_low,  # [BLOCK_M, K_PADDED]
    query_high,
    first_key,
    stop_key,
    position,  # [BLOCK_M] of each row's token
    slope,
    k_ptr,  # of this head
    v_ptr,
    k_scale_ptr,
    v_scale_ptr,
    table_ptr,
    record_stride,
    scale,
    softcap,
    window,
    K_WIDTH: tl.constexpr,
    V_WIDTH: tl.constexpr,
    K_PADDED: tl.constexpr,
    V_PADDED: tl.constexpr,
    K_FORMAT: tl.constexpr,
    V_FORMAT: tl.constexpr,
    K_HALVES: tl.constexpr,
    V_HALVES: tl.constexpr,
    LIFT: tl.constexpr,
    V_TYPE: tl.constexpr,  # of the products with values
    K_UNITS: tl.constexpr,  # elements in 16 bytes
    V_UNITS: tl.constexpr,
    K_INT4_GROUP: tl.constexpr,
    V_INT4_GROUP: tl.constexpr,
    K_SLOT_STRIDE: tl.constexpr,
    V_SLOT_STRIDE: tl.constexpr,
    K_SCALE_SLOT_STRIDE: tl.constexpr,
    V_SCALE_SLOT_STRIDE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Take the keys first_key .. first_key + TILE into the running softmax."""
    key = first_key + tl.arange(0, TILE)
    exists = key < stop_key
    if MASKED:
        block = tl.load(table_ptr + key // BLOCK_SIZE, mask=exists, other=0)
    else:
        block = tl.load(table_ptr + key // BLOCK_SIZE)
    # 64 bits before any product: a pool has more than 2**31 elements.
    record = block.to(tl.int64) * record_stride
    slot = key % BLOCK_SIZE

    k_row = record * K_UNITS + slot * K_SLOT_STRIDE
    k_scale_row = record * 4 + slot * K_SCALE_SLOT_STRIDE
    if K_HALVES > 0:
        if K_FORMAT == "int4":
            k_low, k_high = load_int4(
                k_ptr, k_row, k_scale_ptr, k_scale_row, exists,
                K_WIDTH, K_PADDED, K_INT4_GROUP, MASKED,
            )  # fmt: skip
        elif K_FORMAT == "fp8_e4m3":
            k_low, k_high = load_e4m3_pairs(k_ptr, k_row, exists, K_WIDTH, K_PADDED, MASKED)
        else:
            k_low, k_high = load_int8(k_ptr, k_row, exists, K_WIDTH, K_PADDED, MASKED)
        k_low = tl.trans(k_low.to(query_low.dtype))
        k_high = tl.trans(k_high.to(query_low.dtype))
        scores = tl.dot(query_low, k_low, input_precision="ieee")
        scores = tl.dot(query_high, k_high, scores, input_precision="ieee")
    else:
        keys = load_rows(k_ptr, k_row, exists, K_WIDTH, K_PADDED, MASKED)
        scores = tl.dot(query_low, tl.trans(keys.to(query_low.dtype)), input_precision="ieee")
    if K_FORMAT == "int8" or K_FORMAT == "fp8_e4m3":
        scores = scores * load_scales(k_scale_ptr, k_scale_row, exists, MASKED)[None, :]
    elif K_FORMAT != "int4":
        scores = scores * scale
    if HAS_SOFTCAP:
        scores = softcap * tanh(scores / softcap)
    if HAS_SLOPES:
        distance = position.to(tl.float32)[:, None] - key.to(tl.float32)[None, :]
        scores -= slope[:, None] * distance
    if MASKED:
        visible = key[None, :] <= position[:, None]
        if HAS_WINDOW:
            visible = visible & (key[None, :] > position[:, None] - window)
        scores = tl.where(visible, scores, float("-inf"))

    new_max = tl.maximum(row_max, tl.max(scores, 1))
    if MASKED:  # nothing seen yet: -inf minus -inf would be not-a-number
        base = tl.where(new_max == float("-inf"), 0.0, new_max)
    else:
        base = new_max
    weights = tl.exp2(scores - (base - LIFT)[:, None])
    shrink = tl.exp2(row_max - base)
    row_sum = row_sum * shrink + tl.sum(weights, 1)

    v_row = record * V_UNITS + slot * V_SLOT_STRIDE
    out_low = out_low * shrink[:, None]
    v_scale_row = record * 4 + slot * V_SCALE_SLOT_STRIDE
    if V_FORMAT == "int8" or V_FORMAT == "fp8_e4m3":
        weights = weights * load_scales(v_scale_ptr, v_scale_row, exists, MASKED)[None, :]
    weights = weights.to(number_type(V_TYPE))
    if V_HALVES > 0:
        if V_FORMAT == "int4":
            v_low, v_high = load_int4(
                v_ptr, v_row, v_scale_ptr, v_scale_row, exists,
                V_WIDTH, V_PADDED, V_INT4_GROUP, MASKED,
            )  # fmt: skip
        elif V_FORMAT == "int8":
            v_low, v_high = load_int8(v_ptr, v_row, exists, V_WIDTH, V_PADDED, MASKED)
        else:
            v_low, v_high = load_e4m3_pairs(v_ptr, v_row, exists, V_WIDTH, V_PADDED, MASKED)
        out_high = out_high * shrink[:, None]
        out_low = tl.dot(weights, v_low.to(weights.dtype), out_low, input_precision="ieee")
        out_high = tl.dot(weights, v_high.to(weights.dtype), out_high, input_precision="ieee")
    else:
        values = load_rows(v_ptr, v_row, exists, V_WIDTH, V_PADDED, MASKED)
        out_low = tl.dot(weights, values.to(weights.dtype), out_low, input_precision="ieee")
    return new_max, row_sum, out_low, out_high


@triton.jit
def tanh(x):
    """By way of 2 ** -|x|, which cannot overflow."""
    e = tl.exp2(tl.abs(x) * -2.8853900817779268)
    magnitude = (1.0 - e) / (1.0 + e)
    return tl.where(x < 0.0, -magnitude, magnitude)
