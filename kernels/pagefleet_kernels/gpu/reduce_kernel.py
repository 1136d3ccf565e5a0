"""Merge the partial results of split attention by their softmax sums."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["most_query", "splits"])
def reduce_kernel(
    out_ptr,  # [num_tokens, num_heads, V_WIDTH]
    partial_ptr,  # [num_seqs, most_query, num_heads, splits, V_WIDTH] each normalised
    # float32 [num_seqs, most_query, num_heads, splits, 2]: the largest score in log2 and the sum of
    # 2 ** (score - largest); a largest of -inf: nothing was written
    stats_ptr,
    starts_ptr,  # [num_seqs + 1] int32
    sinks_ptr,  # [num_heads]
    most_query,
    splits,
    out_token_stride,
    out_head_stride,
    NUM_HEADS: tl.constexpr,
    V_WIDTH: tl.constexpr,
    V_PADDED: tl.constexpr,
    HEADS: tl.constexpr,  # of one program
    SPLITS_PADDED: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):
    """Program (sequence x token, heads); tokens beyond a sequence's, and others' sequences, end."""
    seq = tl.program_id(0) // most_query
    token = tl.program_id(0) % most_query
    start = tl.load(starts_ptr + seq)
    query_len = tl.load(starts_ptr + seq + 1) - start
    if token >= query_len or query_len > most_query:
        return
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    is_head = head < NUM_HEADS
    first = (tl.program_id(0).to(tl.int64) * NUM_HEADS + head) * splits  # [HEADS]

    split = tl.arange(0, SPLITS_PADDED)
    largest = tl.load(
        stats_ptr + (first[:, None] + split[None, :]) * 2,
        mask=is_head[:, None] & (split < splits)[None, :],
        other=float("-inf"),
    )
    largest = tl.max(largest, 1)
    if HAS_SINKS:
        sink = tl.load(sinks_ptr + head, mask=is_head, other=0.0).to(tl.float32)
        sink = sink * 1.4426950408889634
        largest = tl.maximum(largest, sink)
    largest = tl.where(largest == float("-inf"), 0.0, largest)

    column = tl.arange(0, V_PADDED)
    out = tl.zeros([HEADS, V_PADDED], tl.float32)
    total = tl.zeros([HEADS], tl.float32)  # summed in the order of splits, however many there are
    if HAS_SINKS:
        total += tl.exp2(sink - largest)
    for index in range(0, splits):
        part_max = tl.load(stats_ptr + (first + index) * 2, mask=is_head, other=float("-inf"))
        is_written = part_max != float("-inf")
        part_sum = tl.load(stats_ptr + (first + index) * 2 + 1, mask=is_written, other=0.0)
        values = tl.load(
            partial_ptr + ((first + index) * V_WIDTH)[:, None] + column[None, :],
            mask=is_written[:, None] & (column < V_WIDTH)[None, :],
            other=0.0,
        )
        weight = part_sum * tl.exp2(part_max - largest)
        total += weight
        out += values.to(tl.float32) * weight[:, None]
    out = out / tl.where(total == 0.0, 1.0, total)[:, None]  # no tokens: zeros
    place = (start + token).to(tl.int64) * out_token_stride + head * out_head_stride
    tl.store(
        out_ptr + place[:, None] + column[None, :],
        out.to(out_ptr.dtype.element_ty),
        mask=is_head[:, None] & (column < V_WIDTH)[None, :],
    )
