"""Draw one token per row: find the row's threshold, draw in chunks, pick the best chunk.

The threshold is searched among all float32 values, four ways at a time, by sums that one program
adds in a fixed order: neither other rows nor their number change what is kept.
"""

import torch
import triton
import triton.language as tl

from pagefleet_kernels.sampling import SamplingRows, check_sampling

CHUNK = 4096

LOG2_E = tl.constexpr(1.4426950408889634)
BROKEN_ROW = tl.constexpr(-1)


@triton.constexpr_function
def _spare_bits(dtype):
    """Trailing bits that are zero in float32 numbers which come from this type."""
    return {"bf16": 16, "fp16": 13}.get(str(dtype), 0)


@triton.jit
def _key_of(value, SPARE_BITS: tl.constexpr):
    """An integer that is ordered as float32 is, without the bits that no logit has."""
    bits = value.to(tl.int32, bitcast=True) >> SPARE_BITS
    return (bits ^ ((bits >> 31) & (0x7FFFFFFF >> SPARE_BITS))).to(tl.int64)


@triton.jit
def _value_of(key, SPARE_BITS: tl.constexpr):
    bits = key.to(tl.int32)
    bits = (bits ^ ((bits >> 31) & (0x7FFFFFFF >> SPARE_BITS))) << SPARE_BITS
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _weight(logit, largest, temperature, MASS: tl.constexpr):
    """What a token counts in a search: its probability over the largest one, or one."""
    if MASS:
        return tl.exp2((logit - largest) / temperature * LOG2_E)
    else:
        return tl.where(logit == logit, 1.0, 0.0)


@triton.jit
def _largest_reaching(
    logits, vocab_size, lowest, largest, temperature, goal, MASS: tl.constexpr, CHUNK: tl.constexpr
):
    """The largest logit that weighs `goal` together with those above it, from `lowest` on."""
    SPARE_BITS: tl.constexpr = _spare_bits(logits.dtype.element_ty)
    low, high = _key_of(lowest, SPARE_BITS), _key_of(largest, SPARE_BITS) + 1
    while high - low > 1:
        step = (high - low + 3) // 4
        keys_1, keys_2, keys_3 = low + step, low + 2 * step, low + 3 * step
        value_1 = _value_of(tl.minimum(keys_1, high - 1), SPARE_BITS)
        value_2 = _value_of(tl.minimum(keys_2, high - 1), SPARE_BITS)
        value_3 = _value_of(tl.minimum(keys_3, high - 1), SPARE_BITS)
        sum_1 = tl.zeros((CHUNK,), tl.float32)
        sum_2 = tl.zeros((CHUNK,), tl.float32)
        sum_3 = tl.zeros((CHUNK,), tl.float32)
        for start in range(0, vocab_size, CHUNK):
            token = start + tl.arange(0, CHUNK)
            logit = tl.load(logits + token, mask=token < vocab_size, other=float("-inf"))
            logit = logit.to(tl.float32)
            weight = _weight(logit, largest, temperature, MASS)
            sum_1 += tl.where(logit >= value_1, weight, 0.0)
            sum_2 += tl.where(logit >= value_2, weight, 0.0)
            sum_3 += tl.where(logit >= value_3, weight, 0.0)
        reached = (
            (tl.sum(sum_1) >= goal).to(tl.int64)
            + (tl.sum(sum_2) >= goal).to(tl.int64)
            + (tl.sum(sum_3) >= goal).to(tl.int64)
        )
        high = tl.minimum(high, tl.where(reached == 3, high, low + (reached + 1) * step))
        low = tl.minimum(low + reached * step, high - 1)
    return _value_of(low, SPARE_BITS)


@triton.jit
def threshold_kernel(
    logits,  # [num_rows, vocab_size]
    temperatures,
    top_ks,
    top_ps,
    min_ps,
    thresholds,  # [num_rows] float32
    vocab_size,
    stride,
    CHUNK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    temperature = tl.load(temperatures + row)
    top_k, top_p = tl.load(top_ks + row), tl.load(top_ps + row)
    min_p = tl.load(min_ps + row)
    threshold = tl.full((), float("-inf"), tl.float32)
    if (temperature > 0) & ((top_k > 0) | (top_p < 1) | (min_p > 0)):
        best = tl.full((CHUNK,), float("-inf"), tl.float32)
        for start in range(0, vocab_size, CHUNK):
            token = start + tl.arange(0, CHUNK)
            logit = tl.load(logits + token, mask=token < vocab_size, other=float("-inf"))
            best = tl.maximum(best, logit.to(tl.float32))
        largest = tl.max(best, axis=0)
        if min_p > 0:
            threshold = largest + temperature * tl.log(min_p)
        if (top_k > 0) & (top_k < vocab_size):
            by_rank = _largest_reaching(
                logits, vocab_size, threshold, largest, temperature, top_k.to(tl.float32),
                MASS=False, CHUNK=CHUNK,
            )  # fmt: skip
            threshold = tl.maximum(threshold, by_rank)
        if top_p < 1:
            total = tl.zeros((CHUNK,), tl.float32)
            for start in range(0, vocab_size, CHUNK):
                token = start + tl.arange(0, CHUNK)
                logit = tl.load(logits + token, mask=token < vocab_size, other=float("-inf"))
                logit = logit.to(tl.float32)
                weight = _weight(logit, largest, temperature, MASS=True)
                total += tl.where(logit >= threshold, weight, 0.0)
            by_mass = _largest_reaching(
                logits, vocab_size, threshold, largest, temperature, top_p * tl.sum(total),
                MASS=True, CHUNK=CHUNK,
            )  # fmt: skip
            threshold = tl.maximum(threshold, by_mass)
    tl.store(thresholds + row, threshold)


@triton.jit
def _gumbel(seed, position, token):
    """Noise of the tokens at one position of one request."""
    zero = token * 0
    low = (position & 0xFFFFFFFF).to(tl.uint32) + zero.to(tl.uint32)
    high = ((position >> 32) & 0xFFFFFFFF).to(tl.uint32) + zero.to(tl.uint32)
    bits, _, _, _ = tl.philox(seed, token.to(tl.uint32), low, high, zero.to(tl.uint32))
    uniform = tl.minimum((bits.to(tl.float32) + 0.5) * 2.3283064365386963e-10, 0.99999994)
    series = uniform * (1.0 + uniform * (0.5 + uniform * (1.0 / 3.0 + uniform * 0.25)))
    exponential = tl.where(uniform < 0.015625, series, -tl.log(1.0 - uniform))
    return -tl.log(exponential)


@triton.jit
def perturbed(logit, threshold, temperature, seed, position, token):
    """The largest of these numbers is a draw from the kept tokens."""
    kept = (logit >= threshold) & (logit > float("-inf"))
    noise = _gumbel(seed, position, token)
    return tl.where(kept, logit / temperature + noise, float("-inf"))


@triton.jit
def draw_kernel(
    logits,  # [num_rows, vocab_size]
    thresholds,
    temperatures,
    seeds,
    positions,
    best_scores,  # [num_rows, num_chunks] float32
    best_tokens,  # [num_rows, num_chunks] int32
    vocab_size,
    stride,
    num_chunks,
    CHUNK: tl.constexpr,
):
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    token = chunk * CHUNK + tl.arange(0, CHUNK)
    logit = tl.load(logits + row * stride + token, mask=token < vocab_size, other=float("-inf"))
    score = logit.to(tl.float32)
    broken = tl.max(tl.where(score < float("inf"), 0, 1), axis=0)  # NaN is not below infinity
    temperature = tl.load(temperatures + row)
    if temperature > 0:
        seed, position = tl.load(seeds + row), tl.load(positions + row)
        score = perturbed(score, tl.load(thresholds + row), temperature, seed, position, token)
    best = tl.max(score, axis=0)
    lowest = tl.min(tl.where(score == best, token, vocab_size), axis=0)
    place = row * num_chunks + chunk
    tl.store(best_scores + place, best)
    tl.store(best_tokens + place, tl.where(broken > 0, BROKEN_ROW, lowest))


@triton.jit
def pick_kernel(best_scores, best_tokens, tokens, num_chunks, vocab_size, CHUNKS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.arange(0, CHUNKS)
    inside = chunk < num_chunks
    score = tl.load(best_scores + row * num_chunks + chunk, mask=inside, other=float("-inf"))
    token = tl.load(best_tokens + row * num_chunks + chunk, mask=inside, other=vocab_size)
    best = tl.max(score, axis=0)
    lowest = tl.min(tl.where(score == best, token, vocab_size), axis=0)
    usable = (tl.min(token, axis=0) >= 0) & (best > float("-inf"))
    tl.store(tokens + row, tl.where(usable, lowest, BROKEN_ROW).to(tl.int64))


def sample(
    logits: torch.Tensor,  # [num_rows, vocab_size], rows may be strided
    rows: SamplingRows,
    *,
    any_filter: bool = True,
) -> torch.Tensor:
    """As `sample_reference`."""
    check_sampling(logits, rows)
    num_rows, vocab_size = logits.shape
    tokens = torch.empty(num_rows, dtype=torch.int64, device=logits.device)
    if num_rows == 0:
        return tokens
    if any_filter:
        thresholds = find_thresholds(logits, rows)
    else:
        thresholds = torch.full_like(rows.temperature, float("-inf"))
    num_chunks = triton.cdiv(vocab_size, CHUNK)
    best_scores = torch.empty(num_rows, num_chunks, dtype=torch.float32, device=logits.device)
    best_tokens = torch.empty(num_rows, num_chunks, dtype=torch.int32, device=logits.device)
    draw_kernel[(num_rows, num_chunks)](
        logits,
        thresholds,
        rows.temperature,
        rows.seeds,
        rows.positions,
        best_scores,
        best_tokens,
        vocab_size,
        logits.stride(0),
        num_chunks,
        CHUNK=CHUNK,
        num_warps=8,
    )
    pick_kernel[(num_rows,)](
        best_scores,
        best_tokens,
        tokens,
        num_chunks,
        vocab_size,
        CHUNKS=triton.next_power_of_2(num_chunks),
        num_warps=1,
    )
    return tokens


def find_thresholds(logits: torch.Tensor, rows: SamplingRows) -> torch.Tensor:
    """As `thresholds_reference`, up to tokens whose masses differ in the last bits of float32."""
    check_sampling(logits, rows)
    thresholds = torch.empty(logits.shape[0], dtype=torch.float32, device=logits.device)
    if logits.shape[0]:
        threshold_kernel[(logits.shape[0],)](
            logits,
            rows.temperature,
            rows.top_k,
            rows.top_p,
            rows.min_p,
            thresholds,
            logits.shape[1],
            logits.stride(0),
            CHUNK=CHUNK,
            num_warps=8,
        )
    return thresholds
