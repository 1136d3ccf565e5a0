"""Paged attention in Triton: one kernel for decoding, speculative steps, prefill and mixed batches.

A program answers BLOCK_M rows of one sequence and one key head. A row is one query head of one
token: row r of a sequence is token r // GROUP, head r % GROUP of those that share the key head, so
a tile of keys is read once for all of them.

decoding   program (sequence, row tile x key head, split): a split is a range of the keys. With
           SPLIT the result is a partial one, normalised, beside the log2 of its softmax sum.
prefill    program (row tile, key head): SEARCH finds the sequence by bisection of query_starts.

Scores are in units of log2: `scale`, `softcap` and the slopes come multiplied with log2(e).
"""

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
from pagefleet_kernels.gpu.hadamard_tile import rotate_halves


@triton.jit(
    do_not_specialize=[
        "window",
        "num_seqs",
        "least_query",
        "most_query",
        "splits",
        "split_shift",
        "split_tokens",
        "table_stride",
        "record_stride",
    ]
)
def attention_kernel(
    query_ptr,  # [num_tokens, num_heads, K_WIDTH]
    # [num_tokens, num_heads, V_WIDTH], with SPLIT [num_seqs, most_query, num_heads, splits, V_WIDTH]
    out_ptr,
    stats_ptr,  # with SPLIT float32 [num_seqs, most_query, num_heads, splits, 2] maximum and sum
    k_ptr,
    v_ptr,
    k_scale_ptr,
    v_scale_ptr,
    tables_ptr,  # [num_seqs, *] int32 or int64
    starts_ptr,  # [num_seqs + 1] int32
    lengths_ptr,  # [num_seqs] int32
    sinks_ptr,  # [num_heads]
    slopes_ptr,  # [num_heads]
    scale,
    softcap,
    window,
    num_seqs,
    least_query,  # sequences with fewer or more tokens than these bounds are another launch's
    most_query,
    splits,
    split_shift,  # log2 of splits, where the keys of a sequence are divided evenly
    split_tokens,  # else the keys of a split
    query_token_stride,
    query_head_stride,
    out_token_stride,
    out_head_stride,
    table_stride,
    record_stride,  # from block to block, in units of 16 bytes
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    K_WIDTH: tl.constexpr,
    V_WIDTH: tl.constexpr,
    K_PADDED: tl.constexpr,  # powers of two; of half a row where the rows are of 4 bits
    V_PADDED: tl.constexpr,
    K_FORMAT: tl.constexpr,
    V_FORMAT: tl.constexpr,
    K_HALVES: tl.constexpr,
    V_HALVES: tl.constexpr,  # 0: whole rows, 1: lower and upper half, 2: even and odd columns
    K_TYPE: tl.constexpr,  # of the products with keys and with values
    V_TYPE: tl.constexpr,
    K_UNITS: tl.constexpr,  # elements in 16 bytes
    V_UNITS: tl.constexpr,
    K_INT4_GROUP: tl.constexpr,
    V_INT4_GROUP: tl.constexpr,
    LIFT: tl.constexpr,  # weights are 2 ** LIFT too large, so that float16 holds small ones
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
    BLOCK_M: tl.constexpr,
    TILE: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    SEARCH: tl.constexpr,
    SPLIT: tl.constexpr,
):
    if SEARCH:
        # The last rows of a sequence see most keys: they start first.
        target = tl.num_programs(0) - 1 - tl.program_id(0)
        seq = find_sequence(starts_ptr, target, num_seqs, GROUP, BLOCK_M)
        row_tile = target - (tl.load(starts_ptr + seq) * GROUP // BLOCK_M + seq)
        kv_head = tl.program_id(1)
        split = 0
    else:
        seq = tl.program_id(0)
        row_tile = tl.program_id(1) // KV_HEADS
        kv_head = tl.program_id(1) % KV_HEADS
        split = tl.program_id(2)
    start = tl.load(starts_ptr + seq)
    query_len = tl.load(starts_ptr + seq + 1) - start
    first_row = row_tile * BLOCK_M
    if query_len < least_query or query_len > most_query or first_row >= query_len * GROUP:
        return

    row = first_row + tl.arange(0, BLOCK_M)
    token = row // GROUP
    head = kv_head * GROUP + row % GROUP
    is_row = token < query_len
    known = tl.load(lengths_ptr + seq) - query_len  # tokens before this step's
    position = known + token

    last_token = tl.minimum((first_row + BLOCK_M - 1) // GROUP, query_len - 1)
    stop_key = known + last_token + 1
    start_key = 0
    if HAS_WINDOW:
        oldest = known + first_row // GROUP - window + 1
        start_key = tl.maximum(oldest, 0) // TILE * TILE
    tiles = tl.cdiv(tl.maximum(stop_key - start_key, 0), TILE)
    first_tile = 0
    if SPLIT:
        tiles_each = (tiles + (1 << split_shift) - 1) >> split_shift
        if split_tokens > 0:
            tiles_each = split_tokens // TILE
        first_tile = tl.minimum(split * tiles_each, tiles)
        tiles = tl.minimum(first_tile + tiles_each, tiles)
        partial = (seq.to(tl.int64) * most_query + token) * (KV_HEADS * GROUP) + head
        partial = partial * splits + split  # [BLOCK_M]
        if first_tile >= tiles:
            tl.store(stats_ptr + partial * 2, float("-inf"), mask=is_row)
            return
        out_row = partial * V_WIDTH
    else:
        out_row = (start + token).to(tl.int64) * out_token_stride + head * out_head_stride

    query_row = (start + token).to(tl.int64) * query_token_stride + head * query_head_stride
    if K_HALVES > 0:
        low, high = load_halves(query_ptr, query_row, is_row, K_WIDTH, K_PADDED, K_HALVES)
        if ROTATED:
            low, high = rotate_halves(low, high, K_WIDTH // 2, K_PADDED, K_INT4_GROUP)
        query_low = (low.to(tl.float32) * scale).to(number_type(K_TYPE))
        query_high = (high.to(tl.float32) * scale).to(number_type(K_TYPE))
    else:
        query_low = load_rows(query_ptr, query_row, is_row, K_WIDTH, K_PADDED, True)
        if K_FORMAT == "fp8_e4m3":
            query_low = (query_low.to(tl.float32) * scale).to(number_type(K_TYPE))
        query_high = query_low
    slope = tl.zeros([BLOCK_M], tl.float32)
    if HAS_SLOPES:
        slope = tl.load(slopes_ptr + head, mask=is_row, other=0.0).to(tl.float32)
        slope = slope * 1.4426950408889634

    row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    if HAS_SINKS and not SPLIT:  # a key without a value; the reduction adds it otherwise
        sink = tl.load(sinks_ptr + head, mask=is_row, other=0.0).to(tl.float32)
        row_max = sink * 1.4426950408889634
        row_sum = tl.full([BLOCK_M], 2.0**LIFT, tl.float32)
    out_low = tl.zeros([BLOCK_M, V_PADDED], tl.float32)
    out_high = out_low

    table_ptr = tables_ptr + seq.to(tl.int64) * table_stride
    k_scale_head = k_scale_ptr
    v_scale_head = v_scale_ptr
    if K_SCALE_HEAD_STRIDE > 0:
        k_scale_head += kv_head * K_SCALE_HEAD_STRIDE
    if V_SCALE_HEAD_STRIDE > 0:
        v_scale_head += kv_head * V_SCALE_HEAD_STRIDE
    whole_tiles = first_tile
    if not HAS_WINDOW:  # tiles that every row sees in full need no mask
        whole_tiles = tl.maximum(known + first_row // GROUP + 1, 0) // TILE
        whole_tiles = tl.maximum(tl.minimum(whole_tiles, tiles), first_tile)
        for tile in range(first_tile, whole_tiles):
            row_max, row_sum, out_low, out_high = attend_tile(
                row_max, row_sum, out_low, out_high, query_low, query_high,
                tile * TILE, stop_key, position, slope,
                k_ptr + kv_head * K_HEAD_STRIDE, v_ptr + kv_head * V_HEAD_STRIDE,
                k_scale_head, v_scale_head, table_ptr, record_stride, scale, softcap, window,
                K_WIDTH, V_WIDTH, K_PADDED, V_PADDED, K_FORMAT, V_FORMAT,
                K_HALVES, V_HALVES, LIFT, K_TYPE, V_TYPE, K_UNITS, V_UNITS, K_INT4_GROUP, V_INT4_GROUP, K_SLOT_STRIDE, V_SLOT_STRIDE,
                K_SCALE_SLOT_STRIDE, V_SCALE_SLOT_STRIDE, BLOCK_SIZE, TILE,
                HAS_WINDOW, HAS_SOFTCAP, HAS_SLOPES, False,
            )  # fmt: skip
    for tile in range(whole_tiles, tiles):
        row_max, row_sum, out_low, out_high = attend_tile(
            row_max, row_sum, out_low, out_high, query_low, query_high,
            start_key + tile * TILE, stop_key, position, slope,
            k_ptr + kv_head * K_HEAD_STRIDE, v_ptr + kv_head * V_HEAD_STRIDE,
            k_scale_head, v_scale_head, table_ptr, record_stride, scale, softcap, window,
            K_WIDTH, V_WIDTH, K_PADDED, V_PADDED, K_FORMAT, V_FORMAT,
            K_HALVES, V_HALVES, LIFT, K_TYPE, V_TYPE, K_UNITS, V_UNITS, K_INT4_GROUP, V_INT4_GROUP, K_SLOT_STRIDE, V_SLOT_STRIDE,
            K_SCALE_SLOT_STRIDE, V_SCALE_SLOT_STRIDE, BLOCK_SIZE, TILE,
            HAS_WINDOW, HAS_SOFTCAP, HAS_SLOPES, True,
        )  # fmt: skip

    # A row that saw nothing (padding, a sequence of no tokens) is zero; not-a-number stays.
    total = tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
    column = tl.arange(0, V_PADDED)
    place = out_ptr + out_row[:, None]
    if SPLIT:
        tl.store(stats_ptr + partial * 2, row_max - LIFT, mask=is_row)
        tl.store(stats_ptr + partial * 2 + 1, row_sum, mask=is_row)
    if V_HALVES == 0:
        inside = is_row[:, None] & (column < V_WIDTH)[None, :]
        out = (out_low / total).to(out_ptr.dtype.element_ty)
        tl.store(place + column[None, :], out, mask=inside)
    else:
        inside = is_row[:, None] & (column < V_WIDTH // 2)[None, :]
        out_low = out_low / total
        out_high = out_high / total
        if ROTATED:
            out_low = out_low.to(number_type(V_TYPE))
            out_high = out_high.to(number_type(V_TYPE))
            out_low, out_high = rotate_halves(
                out_low, out_high, V_WIDTH // 2, V_PADDED, V_INT4_GROUP
            )
        if V_HALVES == 2:  # even and odd columns
            place += (column * 2)[None, :]
            next_half = 1
        else:
            place += column[None, :]
            next_half = V_WIDTH // 2
        tl.store(place, out_low.to(out_ptr.dtype.element_ty), mask=inside)
        tl.store(place + next_half, out_high.to(out_ptr.dtype.element_ty), mask=inside)

@triton.jit
def attend_tile(
    row_max,  # [BLOCK_M] of the scores so far
    row_sum,  # [BLOCK_M] of 2 ** (score - row_max)
    out_low,  # [BLOCK_M, V_PADDED] weighted values, not yet divided by row_sum
    out_high,  # the same of the upper half of a row, where values are of 4 bits
    query_low,
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
    K_TYPE: tl.constexpr,  # of the products with keys and with values
    V_TYPE: tl.constexpr,
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
def find_sequence(starts_ptr, target, num_seqs, GROUP: tl.constexpr, BLOCK_M: tl.constexpr):
    """The sequence that row tile `target` belongs to.

    Sequence i starts at tile starts[i] * GROUP // BLOCK_M + i: never more tiles than it needs
    lie before it, so a few tiles at a sequence's end find no row.
    """
    low = 0
    high = num_seqs
    while low < high:
        middle = (low + high) // 2
        if tl.load(starts_ptr + middle) * GROUP // BLOCK_M + middle <= target:
            low = middle + 1
        else:
            high = middle
    return low - 1


@triton.jit
def load_halves(
    rows_ptr, offsets, exists, WIDTH: tl.constexpr, PADDED: tl.constexpr, HALVES: tl.constexpr
):
    """Lower and upper halves (1) or even and odd columns (2) of rows: two [rows, PADDED]."""
    column = tl.arange(0, PADDED)
    inside = exists[:, None] & (column < WIDTH // 2)[None, :]
    if HALVES == 2:
        place = rows_ptr + offsets[:, None] + (column * 2)[None, :]
        next_half = 1
    else:
        place = rows_ptr + offsets[:, None] + column[None, :]
        next_half = WIDTH // 2
    low = tl.load(place, mask=inside, other=0.0)
    high = tl.load(place + next_half, mask=inside, other=0.0)
    return low, high


@triton.jit
def tanh(x):
    """By way of 2 ** -|x|, which cannot overflow."""
    e = tl.exp2(tl.abs(x) * -2.8853900817779268)
    magnitude = (1.0 - e) / (1.0 + e)
    return tl.where(x < 0.0, -magnitude, magnitude)
