"""Paged attention in Triton: one kernel for decoding, speculative steps, prefill and mixed batches.

A program answers BLOCK_M rows of one sequence and one key head. A row is one query head of one
token: row r of a sequence is token r // GROUP, head r % GROUP of those that share the key head, so
a tile of keys is read once for all of them.

decoding   program (sequence, row tile x key head, split): a split is a range of the keys. With
           SPLIT the result is a partial one, normalised, beside its largest score and its sum.
prefill    program (row tile, key head): SEARCH finds the sequence by bisection of query_starts.

Scores are in units of log2: `scale` and `softcap` come multiplied with log2(e). Queries of stored
codes are scaled before they become float16: beyond 65504 they, and the result, are not a number.
"""

import triton
import triton.language as tl

from pagefleet_kernels.gpu.attend_tile import attend_tile
from pagefleet_kernels.gpu.cache_tile import load_halves, load_rows, number_type
from pagefleet_kernels.gpu.hadamard_tile import rotate_half, rotate_halves


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
    out_ptr,  # [num_tokens, num_heads, V_WIDTH], or with SPLIT as reduce_kernel takes it
    stats_ptr,  # with SPLIT, likewise
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

    token, head, is_row = rows_of(first_row, kv_head, query_len, GROUP, BLOCK_M)
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
        if first_tile >= tiles:
            row = partial_of(seq, token, head, split, most_query, splits, KV_HEADS * GROUP)
            tl.store(stats_ptr + row * 2, float("-inf"), mask=is_row)
            return

    query_row = (start + token).to(tl.int64) * query_token_stride + head * query_head_stride
    if K_HALVES > 0:
        low, high = load_halves(query_ptr, query_row, is_row, K_WIDTH, K_PADDED, K_HALVES)
        if ROTATED:
            low, high = rotate_halves(low, high, K_WIDTH // 2, K_PADDED, K_INT4_GROUP)
        query_low = (low.to(tl.float32) * scale).to(number_type(K_TYPE))
        query_high = (high.to(tl.float32) * scale).to(number_type(K_TYPE))
    else:
        query_low = load_rows(query_ptr, query_row, is_row, K_WIDTH, K_PADDED, True)
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
    # Tiles that every row sees in full need no mask: two loops, of which a window needs the second.
    whole_tiles = first_tile
    if not HAS_WINDOW:
        whole_tiles = tl.maximum(known + first_row // GROUP + 1, 0) // TILE
        whole_tiles = tl.maximum(tl.minimum(whole_tiles, tiles), first_tile)
    for MASKED in tl.static_range(2):
        begin = whole_tiles if MASKED else first_tile
        end = tiles if MASKED else whole_tiles
        for tile in range(begin, end):
            row_max, row_sum, out_low, out_high = attend_tile(
                row_max, row_sum, out_low, out_high, query_low, query_high,
                start_key + tile * TILE, stop_key, position, slope,
                k_ptr + kv_head * K_HEAD_STRIDE, v_ptr + kv_head * V_HEAD_STRIDE,
                k_scale_head, v_scale_head, table_ptr, record_stride, scale, softcap, window,
                K_WIDTH, V_WIDTH, K_PADDED, V_PADDED, K_FORMAT, V_FORMAT, K_HALVES, V_HALVES,
                LIFT, V_TYPE, K_UNITS, V_UNITS, K_INT4_GROUP, V_INT4_GROUP,
                K_SLOT_STRIDE, V_SLOT_STRIDE, K_SCALE_SLOT_STRIDE, V_SCALE_SLOT_STRIDE,
                BLOCK_SIZE, TILE, HAS_WINDOW, HAS_SOFTCAP, HAS_SLOPES, MASKED,
            )  # fmt: skip

    # Anew, from a zero that the compiler does not know: it would keep what it found before the
    # loops in registers through them.
    never = query_len >> 31
    token, head, is_row = rows_of(first_row + never, kv_head, query_len, GROUP, BLOCK_M)
    if SPLIT:
        row = partial_of(seq, token, head, split, most_query, splits, KV_HEADS * GROUP)
        tl.store(stats_ptr + row * 2, row_max - LIFT, mask=is_row)
        tl.store(stats_ptr + row * 2 + 1, row_sum, mask=is_row)
        out_row = row * V_WIDTH
    else:
        out_row = (start + token).to(tl.int64) * out_token_stride + head * out_head_stride

    # A row that saw nothing (padding, a sequence of no tokens) is zero; not-a-number stays.
    total = tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
    out_low = out_low / total
    out_high = out_high / total
    place = out_ptr + out_row[:, None]
    if V_HALVES == 1:
        # Turned one after the other where no group lies across the middle: registers do not hold
        # both while they are.
        IN_TURN: tl.constexpr = ROTATED and V_WIDTH // 2 % V_INT4_GROUP == 0
        if ROTATED:
            out_low = out_low.to(number_type(V_TYPE))
            out_high = out_high.to(number_type(V_TYPE))
            if not IN_TURN:
                out_low, out_high = rotate_halves(
                    out_low, out_high, V_WIDTH // 2, V_PADDED, V_INT4_GROUP
                )
        column = tl.arange(0, V_PADDED)
        place += column[None, :]
        inside = is_row[:, None] & (column < V_WIDTH // 2)[None, :]
        if IN_TURN:
            out_low = rotate_half(out_low, V_INT4_GROUP)
        tl.store(place, out_low.to(out_ptr.dtype.element_ty), mask=inside)
        if IN_TURN:
            out_high = rotate_half(out_high, V_INT4_GROUP)
        tl.store(place + V_WIDTH // 2, out_high.to(out_ptr.dtype.element_ty), mask=inside)
    else:
        out = out_low.to(out_ptr.dtype.element_ty)
        if V_HALVES == 2:
            out = tl.interleave(out, out_high.to(out_ptr.dtype.element_ty))
        column = tl.arange(0, out.shape[1])
        inside = is_row[:, None] & (column < V_WIDTH)[None, :]
        tl.store(place + column[None, :], out, mask=inside)


@triton.jit
def rows_of(first_row, kv_head, query_len, GROUP: tl.constexpr, BLOCK_M: tl.constexpr):
    """Token of its sequence and query head of each row, and whether there is such a token."""
    row = first_row + tl.arange(0, BLOCK_M)
    token = row // GROUP
    return token, kv_head * GROUP + row % GROUP, token < query_len


@triton.jit
def partial_of(seq, token, head, split, most_query, splits, NUM_HEADS: tl.constexpr):
    """The place of each row among the partial results, as reduce_kernel takes them."""
    row = (seq.to(tl.int64) * most_query + token) * NUM_HEADS + head
    return row * splits + split


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
