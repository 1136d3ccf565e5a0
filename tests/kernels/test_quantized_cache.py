"""8-bit caches: what is stored, and attention over it, against float64.

Covered: rounding, saturation, rows of zeros, extreme rows, independence of the batch, a pool full
of garbage, broken rows, views inside a block's bytes, fp32, bf16 and fp16 computation. Left out:
CUDA.
"""

from itertools import pairwise

import pytest
import torch

from pagefleet_kernels import AttentionMetadata, KVCache, PagedAttention, allocate_cache, store_kv
from pagefleet_kernels.quantized_cache import (
    FP8,
    Fp8Cache,
    Int8Cache,
    quantize_fp8,
    quantize_int8,
    read_blocks,
)
from pagefleet_kernels.reference import dense_cache, paged_attention_reference

NUM_BLOCKS, BLOCK_SIZE, KV_HEADS, WIDTH, V_WIDTH = 24, 4, 2, 32, 12
LENGTHS = (17, 5, 20, 4)
FORMATS = {"int8": torch.int8, "fp8": FP8}


def caches(dtype: torch.dtype) -> tuple[KVCache, KVCache]:
    """Keys and values over a pool where every byte is the worst one."""
    made = tuple(
        allocate_cache(
            (NUM_BLOCKS, BLOCK_SIZE, KV_HEADS, width), dtype=dtype, device=torch.device("cpu")
        )
        for width in (WIDTH, V_WIDTH)
    )
    for cache in made:
        if isinstance(cache, Int8Cache):
            cache.records.fill_(127)
            cache.scales.fill_(float("nan"))
        else:
            assert isinstance(cache, Fp8Cache)
            cache.codes.view(torch.uint8).fill_(0x7F)  # not-a-number
    keys, values = made
    return keys, values


def whole_sequences() -> AttentionMetadata:
    """Sequences of LENGTHS, in one prefill, over shuffled blocks."""
    ids = torch.randperm(NUM_BLOCKS, generator=torch.Generator().manual_seed(0)).tolist()
    tables = torch.zeros(len(LENGTHS), 5, dtype=torch.int64)
    slots: list[int] = []
    for row, length in zip(tables, LENGTHS, strict=True):
        mine = [ids.pop() for _ in range(-(-length // BLOCK_SIZE))]
        row[: len(mine)] = torch.tensor(mine)
        slots += [mine[i // BLOCK_SIZE] * BLOCK_SIZE + i % BLOCK_SIZE for i in range(length)]
    starts = torch.tensor((0, *LENGTHS)).cumsum(0).tolist()
    return AttentionMetadata(
        query_starts=tuple(starts),
        seq_lens=LENGTHS,
        block_tables=tables,
        slot_mapping=torch.tensor(slots),
    )


def last_tokens(metadata: AttentionMetadata) -> AttentionMetadata:
    """The same sequences, decoding."""
    ends = torch.tensor(metadata.query_starts[1:]) - 1
    return AttentionMetadata(
        query_starts=tuple(range(len(LENGTHS) + 1)),
        seq_lens=metadata.seq_lens,
        block_tables=metadata.block_tables,
        slot_mapping=metadata.slot_mapping[ends],
    )


def tokens(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Query, key and value of all tokens of LENGTHS."""
    torch.manual_seed(seed)
    count = sum(LENGTHS)
    return (
        torch.randn(count, 6, WIDTH),
        torch.randn(count, KV_HEADS, WIDTH),
        torch.randn(count, KV_HEADS, V_WIDTH),
    )


def exact_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, scale: float
) -> torch.Tensor:
    """Causal attention of each sequence in float64, without a cache."""
    starts = [0, *torch.tensor(LENGTHS).cumsum(0).tolist()]
    outputs = []
    for start, stop in pairwise(starts):
        rows = query[start:stop].double().transpose(0, 1)
        keys, values = (
            each[start:stop].double().transpose(0, 1).repeat_interleave(3, dim=0)
            for each in (key, value)
        )
        hidden = torch.ones(stop - start, stop - start).triu(1).bool()
        scores = (rows @ keys.transpose(1, 2) * scale).masked_fill(hidden, float("-inf"))
        outputs.append((scores.softmax(-1) @ values).transpose(0, 1))
    return torch.cat(outputs)


def test_int8_rows_are_rounded_to_the_nearest_of_their_own_scale() -> None:
    rows = torch.randn(50, 3, 64, generator=torch.Generator().manual_seed(0)) * 3
    rows[7, :, 5] = 200.0  # an outlier costs its own row and no other
    codes, scales = quantize_int8(rows)
    torch.testing.assert_close(scales.double(), rows.double().abs().amax(-1) / 127)
    error = (codes.double() * scales.double()[..., None] - rows.double()).abs()
    # half a step, and what fp32 division may round beyond it
    assert (error <= scales.double()[..., None] * (0.5 + 1e-5)).all()
    assert codes.abs().amax() == 127 and (codes.abs().amax(-1) == 127).all()


@pytest.mark.parametrize("magnitude", [0.0, 1e-42, 1e-9, 1e30, 3e38])
def test_extreme_rows_stay_finite_and_zero_stays_zero(magnitude: float) -> None:
    codes, scales = quantize_int8(torch.full((1, 8), magnitude))
    back = codes.float() * scales[..., None]
    torch.testing.assert_close(back, torch.full((1, 8), magnitude), atol=1e-8, rtol=1e-5)


def test_fp8_is_the_nearest_value_and_saturates() -> None:
    every = torch.arange(256, dtype=torch.uint8).view(FP8).double()
    every = every[every.isfinite()]
    values = torch.cat([torch.randn(2000) * 4, torch.tensor([449.0, -1e9, 0.0, 1e-5])])
    error = (quantize_fp8(values).double() - values.double().clamp(-448, 448)).abs()
    best = (every[None, :] - values.double().clamp(-448, 448)[:, None]).abs().amin(1)
    assert torch.equal(error, best)


@pytest.mark.parametrize("dtype", FORMATS.values(), ids=FORMATS)
def test_a_token_is_stored_alike_in_any_batch_and_at_any_time(dtype: torch.dtype) -> None:
    metadata, (_, key, value) = whole_sequences(), tokens()
    at_once, one_by_one = caches(dtype), caches(dtype)
    store_kv(key, value, *at_once, metadata.slot_mapping)
    for index, slot in enumerate(metadata.slot_mapping):
        store_kv(key[index, None], value[index, None], *one_by_one, slot[None])
    for found, expected in zip(one_by_one, at_once, strict=True):
        torch.testing.assert_close(
            dense_cache(found), dense_cache(expected), atol=0, rtol=0, equal_nan=True
        )


@pytest.mark.parametrize("compute", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("dtype", FORMATS.values(), ids=FORMATS)
def test_blocks_are_read_as_the_reference_reads_them(
    dtype: torch.dtype, compute: torch.dtype
) -> None:
    metadata, (_, key, value) = whole_sequences(), tokens()
    keys, values = caches(dtype)
    store_kv(key.to(compute), value.to(compute), keys, values, metadata.slot_mapping)
    blocks = metadata.block_tables[2]
    for cache in (keys, values):
        room = torch.empty(5, *cache.shape[1:], dtype=compute)
        read_blocks(cache, blocks, out=room)
        assert torch.equal(room, dense_cache(cache)[blocks].to(compute))


def test_many_blocks_are_read_in_slices() -> None:
    cache = allocate_cache((90, 16, 2, 64), dtype=torch.int8, device=torch.device("cpu"))
    slots = torch.arange(90 * 16)
    cache.write(torch.randn(90 * 16, 2, 64), slots)  # type: ignore[union-attr]
    blocks, room = torch.arange(89, -1, -1), torch.empty(90, 16, 2, 64)
    read_blocks(cache, blocks, out=room)
    assert torch.equal(room, dense_cache(cache).flip(0))


# Relative to the output's norm, random keys and values: a step of int8 is 1/127 of a row's
# largest value (about 3 sigma), so 0.7 % of sigma a value; e4m3 rounds each value by up to 6 %,
# 2.6 % on average. Keys err in the weights as well, which about doubles it.
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.int8, 0.015), (FP8, 0.06)])
@pytest.mark.parametrize("decoding", [False, True])
def test_attention_over_a_pool_of_garbage_stays_close_to_float64(
    dtype: torch.dtype, tolerance: float, decoding: bool
) -> None:
    metadata, (query, key, value) = whole_sequences(), tokens()
    keys, values = caches(dtype)
    store_kv(key, value, keys, values, metadata.slot_mapping)
    exact = exact_attention(query, key, value, scale=0.2)
    if decoding:
        ends = torch.tensor(metadata.query_starts[1:]) - 1
        metadata, query, exact = last_tokens(metadata), query[ends], exact[ends]
    actual = PagedAttention()(query, keys, values, metadata, scale=0.2)
    assert actual.isfinite().all()
    assert (actual - exact).norm() / exact.norm() < tolerance
    # what is stored is exactly what is read: only the order of fp32 sums differs
    expected = paged_attention_reference(query, keys, values, metadata, scale=0.2)
    torch.testing.assert_close(actual, expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("dtype", FORMATS.values(), ids=FORMATS)
def test_a_window_and_a_softcap_read_the_same_rows(dtype: torch.dtype) -> None:
    metadata, (query, key, value) = whole_sequences(), tokens()
    keys, values = caches(dtype)
    store_kv(key, value, keys, values, metadata.slot_mapping)
    for options in ({"window": 6}, {"softcap": 2.0}, {"window": 3, "softcap": 2.0}):
        arguments = (query, keys, values, metadata)
        torch.testing.assert_close(
            PagedAttention()(*arguments, scale=0.2, **options),
            paged_attention_reference(*arguments, scale=0.2, **options),
            atol=2e-5,
            rtol=2e-5,
        )


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
@pytest.mark.parametrize("dtype", FORMATS.values(), ids=FORMATS)
def test_a_broken_row_shows_in_its_own_sequence_alone(dtype: torch.dtype, broken: float) -> None:
    if dtype == FP8 and broken == float("inf"):
        broken = float("nan")  # e4m3 has no infinity: it saturates
    metadata, (query, key, value) = whole_sequences(), tokens()
    value[3, 0, 1] = broken  # of the first sequence
    keys, values = caches(dtype)
    store_kv(key, value, keys, values, metadata.slot_mapping)
    output = PagedAttention()(query, keys, values, metadata, scale=0.2)
    assert not output[16, 0].isfinite().all()
    assert output[LENGTHS[0] :].isfinite().all()


def test_int8_scales_live_in_the_bytes_of_their_block() -> None:
    cache = Int8Cache(torch.Size((3, 4, 2, 8)), device=torch.device("cpu"))
    assert cache.nbytes == 3 * 4 * 2 * (8 + 4)
    cache.write(torch.full((1, 2, 8), 2.54), torch.tensor([5]))  # block 1, second row
    assert cache.records[0].count_nonzero() == 0 and cache.records[2].count_nonzero() == 0
    assert cache.scales[1, 1].tolist() == pytest.approx([0.02, 0.02])
    moved = cache.records.clone()
    cache.records[2] = moved[1]  # a block moves as one piece
    assert torch.equal(dense_cache(cache)[2], dense_cache(cache)[1])


def test_a_plain_cache_of_another_dtype_is_read_in_the_computations() -> None:
    metadata, (query, key, value) = whole_sequences(), tokens()
    keys = torch.zeros(NUM_BLOCKS, BLOCK_SIZE, KV_HEADS, WIDTH, dtype=torch.bfloat16)
    values = torch.zeros(NUM_BLOCKS, BLOCK_SIZE, KV_HEADS, V_WIDTH, dtype=torch.bfloat16)
    store_kv(key, value, keys, values, metadata.slot_mapping)
    output = PagedAttention()(query, keys, values, metadata, scale=0.2)
    exact = exact_attention(query, key, value, scale=0.2)
    assert (output - exact).norm() / exact.norm() < 5e-3  # bf16 rounds by up to 0.4 %
