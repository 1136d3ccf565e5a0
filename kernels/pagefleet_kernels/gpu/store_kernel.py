"""Write new keys and values into their slots in Triton: rotate by position, quantize, scatter."""

import triton
import triton.language as tl

from pagefleet_kernels.gpu.encode_tile import rotate_rows, store_int4, store_plain, store_scaled


@triton.jit(do_not_specialize=["record_stride"])
def store_kernel(
    query_ptr,  # [num_tokens, NUM_HEADS, K_WIDTH]
    query_out_ptr,  # contiguous
    key_ptr,  # [num_tokens, KV_HEADS, K_WIDTH]
    value_ptr,  # [num_tokens, KV_HEADS, V_WIDTH]
    k_ptr,
    v_ptr,
    k_scale_ptr,
    v_scale_ptr,
    slots_ptr,  # [num_tokens] int64; below zero: padding
    positions_ptr,  # [num_tokens] int64; None: a row of the tables for each token
    cos_ptr,  # [num_positions, ROTARY / 2]
    sin_ptr,
    query_norm_ptr,  # [K_WIDTH], likewise key_norm_ptr; None: rows are not normalized
    key_norm_ptr,
    eps,
    query_token_stride,
    query_head_stride,
    key_token_stride,
    key_head_stride,
    value_token_stride,
    value_head_stride,
    table_stride,  # of cos and sin, from row to row
    record_stride,  # from block to block, in units of 16 bytes
    NUM_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    K_WIDTH: tl.constexpr,
    V_WIDTH: tl.constexpr,
    K_PADDED: tl.constexpr,
    V_PADDED: tl.constexpr,
    K_FORMAT: tl.constexpr,
    V_FORMAT: tl.constexpr,
    K_UNITS: tl.constexpr,  # elements in 16 bytes
    V_UNITS: tl.constexpr,
    K_INT4_GROUP: tl.constexpr,
    V_INT4_GROUP: tl.constexpr,
    ROTATED: tl.constexpr,
    K_HEAD_STRIDE: tl.constexpr,
    K_SLOT_STRIDE: tl.constexpr,
    V_HEAD_STRIDE: tl.constexpr,
    V_SLOT_STRIDE: tl.constexpr,
    K_SCALE_HEAD_STRIDE: tl.constexpr,
    K_SCALE_SLOT_STRIDE: tl.constexpr,
    V_SCALE_HEAD_STRIDE: tl.constexpr,
    V_SCALE_SLOT_STRIDE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    K_HEADS: tl.constexpr,  # of one program, likewise for values and queries
    V_HEADS: tl.constexpr,
    ROTARY: tl.constexpr,  # elements of a row that turn with the position; 0: rows are ready
    INTERLEAVED: tl.constexpr,
):
    """Program (token, part): parts are key heads, then value heads, then query heads."""
    token = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    k_parts: tl.constexpr = (KV_HEADS + K_HEADS - 1) // K_HEADS
    v_parts: tl.constexpr = (KV_HEADS + V_HEADS - 1) // V_HEADS
    slot = tl.load(slots_ptr + token).to(tl.int64)
    record = slot // BLOCK_SIZE * record_stride
    offset = slot % BLOCK_SIZE
    written = tl.where(slot >= 0, KV_HEADS, 0)  # heads
    if part < k_parts:
        k_head = part * K_HEADS + tl.arange(0, K_HEADS)
        is_k_head = k_head < written
        k_rows = load_turned(
            key_ptr + token * key_token_stride, k_head * key_head_stride, is_k_head,
            key_norm_ptr, eps, positions_ptr, token, cos_ptr, sin_ptr, table_stride,
            K_WIDTH, K_PADDED, ROTARY, INTERLEAVED,
        )  # fmt: skip
        store_rows(
            k_rows, k_ptr, record * K_UNITS + k_head * K_HEAD_STRIDE + offset * K_SLOT_STRIDE,
            k_scale_ptr, record * 4 + k_head * K_SCALE_HEAD_STRIDE + offset * K_SCALE_SLOT_STRIDE,
            is_k_head, K_WIDTH, K_PADDED, K_FORMAT, K_INT4_GROUP, ROTATED,
        )  # fmt: skip
    elif part < k_parts + v_parts:
        v_head = (part - k_parts) * V_HEADS + tl.arange(0, V_HEADS)
        is_v_head = v_head < written
        v_rows = load_turned(
            value_ptr + token * value_token_stride, v_head * value_head_stride, is_v_head,
            None, eps, positions_ptr, token, cos_ptr, sin_ptr, table_stride,
            V_WIDTH, V_PADDED, 0, INTERLEAVED,
        )  # fmt: skip
        store_rows(
            v_rows, v_ptr, record * V_UNITS + v_head * V_HEAD_STRIDE + offset * V_SLOT_STRIDE,
            v_scale_ptr, record * 4 + v_head * V_SCALE_HEAD_STRIDE + offset * V_SCALE_SLOT_STRIDE,
            is_v_head, V_WIDTH, V_PADDED, V_FORMAT, V_INT4_GROUP, ROTATED,
        )  # fmt: skip
    elif ROTARY > 0:
        q_head = (part - k_parts - v_parts) * K_HEADS + tl.arange(0, K_HEADS)
        is_q_head = q_head < NUM_HEADS
        q_rows = load_turned(
            query_ptr + token * query_token_stride, q_head * query_head_stride, is_q_head,
            query_norm_ptr, eps, positions_ptr, token, cos_ptr, sin_ptr, table_stride,
            K_WIDTH, K_PADDED, ROTARY, INTERLEAVED,
        )  # fmt: skip
        place = (token * NUM_HEADS + q_head) * K_WIDTH
        store_plain(q_rows, query_out_ptr, place, is_q_head, K_WIDTH, K_PADDED)


@triton.jit
def load_turned(
    rows_ptr,
    offsets,
    is_row,
    norm_ptr,
    eps,
    positions_ptr,
    token,
    cos_ptr,
    sin_ptr,
    table_stride,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    ROTARY: tl.constexpr,
    INTERLEAVED: tl.constexpr,
):
    """Rows [rows, PADDED] in float32, normalized, the first ROTARY elements turned by the position.

    Element x of a pair becomes x * cos + other * sin (minus, for the first of the pair). Either
    step rounds to the rows' own dtype, as if it had been done by itself.
    """
    column = tl.arange(0, PADDED)
    inside = is_row[:, None] & (column < WIDTH)[None, :]
    place = rows_ptr + offsets[:, None]
    rows = tl.load(place + column[None, :], mask=inside, other=0.0).to(tl.float32)
    if norm_ptr is not None:
        mean = tl.sum(rows * rows, axis=1, keep_dims=True) / WIDTH
        inverse = 1.0 / tl.sqrt(mean + eps)
        rows = normalize(rows, inverse, rows_ptr, norm_ptr, column, column < WIDTH)
    if ROTARY > 0:
        if INTERLEAVED:
            other = column ^ 1
            angle = column // 2
            is_first = column % 2 == 0
        else:
            is_first = column < ROTARY // 2
            other = tl.where(is_first, column + ROTARY // 2, column - ROTARY // 2)
            angle = tl.where(is_first, column, other)
        turns = column < ROTARY
        position = token
        if positions_ptr is not None:
            position = tl.load(positions_ptr + token).to(tl.int64)
        row = position * table_stride
        cos = tl.load(cos_ptr + row + angle, mask=turns, other=1.0).to(tl.float32)
        sin = tl.load(sin_ptr + row + angle, mask=turns, other=0.0).to(tl.float32)
        others = tl.load(place + other[None, :], mask=inside & turns[None, :], other=0.0)
        others = others.to(tl.float32)
        if norm_ptr is not None:
            others = normalize(others, inverse, rows_ptr, norm_ptr, other, turns)
        sin = tl.where(is_first, -sin, sin)
        turned = rows * cos[None, :] + others * sin[None, :]
        turned = turned.to(rows_ptr.dtype.element_ty).to(tl.float32)
        rows = tl.where(turns[None, :], turned, rows)
    return rows


@triton.jit
def normalize(rows, inverse, rows_ptr, norm_ptr, column, is_there):
    """Rows over their root mean square, times the weights of their columns."""
    weight = tl.load(norm_ptr + column, mask=is_there, other=0.0).to(tl.float32)
    scaled = (rows * inverse).to(rows_ptr.dtype.element_ty).to(tl.float32)
    return (scaled * weight[None, :]).to(rows_ptr.dtype.element_ty).to(tl.float32)


@triton.jit
def store_rows(
    rows,
    codes_ptr,
    offsets,
    scales_ptr,
    scale_offsets,
    is_row,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    FORMAT: tl.constexpr,
    INT4_GROUP: tl.constexpr,
    ROTATED: tl.constexpr,
):
    if FORMAT == "int4":
        if ROTATED:
            rows = rotate_rows(rows, INT4_GROUP)
        store_int4(
            rows, codes_ptr, offsets, scales_ptr, scale_offsets, is_row, WIDTH, PADDED, INT4_GROUP
        )
    elif FORMAT == "int8" or FORMAT == "fp8_e4m3":
        store_scaled(
            rows, codes_ptr, offsets, scales_ptr, scale_offsets, is_row, WIDTH, PADDED, FORMAT
        )
    else:
        store_plain(rows, codes_ptr, offsets, is_row, WIDTH, PADDED)
