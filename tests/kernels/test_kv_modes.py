"""The cache of every mode: what is stored where, and attention over it, against float64.

Covered: independence of the batch, padding, a pool full of garbage, broken rows, records wider
than the layout, blocks that move as one piece, fp32, bf16 and fp16 computation. Left out: CUDA.
"""

from itertools import pairwise

import pytest
import torch

from pagefleet_kernels import (
    KV_MODES,
    ArgumentError,
    AttentionMetadata,
    KVPool,
    PagedAttention,
    store_kv,
)
from pagefleet_kernels.gather_kv import BlockList, gather_blocks, read_blocks
from pagefleet_kernels.kv_pool import layer_cache
from pagefleet_kernels.reference import paged_attention_reference
from tests.support.kv_pools import CPU, batch_metadata, poisoned_pool, used_blocks

BLOCK_SIZE, NUM_BLOCKS, WIDTH, V_WIDTH = 8, 24, 32, 16
LENGTHS = (17, 5, 40, 8)
QUANTIZED = ("fp8_e4m3", "int8", "int8k_int4v", "int4")


def whole_sequences() -> AttentionMetadata:
    """Sequences of LENGTHS, in one prefill, over shuffled blocks."""
    batch = [(length, length) for length in LENGTHS]
    return batch_metadata(batch, block_size=BLOCK_SIZE, num_blocks=NUM_BLOCKS)


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
        torch.randn(count, 2, WIDTH),
        torch.randn(count, 2, V_WIDTH),
    )


def filled_pool(mode: str, key: torch.Tensor, value: torch.Tensor) -> KVPool:
    """All sequences stored over garbage, in blocks that were cleared as the engine does."""
    metadata, pool = whole_sequences(), poisoned_pool(mode)
    pool.clear(used_blocks(metadata, BLOCK_SIZE))
    store_kv(key, value, pool.layer(0), metadata.slot_mapping)
    return pool


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


@pytest.mark.parametrize("mode", KV_MODES)
def test_a_token_is_stored_alike_in_any_batch_and_at_any_time(mode: str) -> None:
    metadata, (_, key, value) = whole_sequences(), tokens()
    at_once, one_by_one = poisoned_pool(mode), poisoned_pool(mode)
    store_kv(key, value, at_once.layer(0), metadata.slot_mapping)
    for index, slot in enumerate(metadata.slot_mapping):
        store_kv(key[index, None], value[index, None], one_by_one.layer(0), slot[None])
    assert torch.equal(at_once.records, one_by_one.records)


@pytest.mark.parametrize("mode", KV_MODES)
def test_tokens_land_in_their_slots_and_padding_nowhere(mode: str) -> None:
    pool = poisoned_pool(mode, num_layers=2)
    before = pool.records.clone()
    _, key, value = tokens()
    store_kv(key[:4], value[:4], pool.layer(1), torch.tensor([-1, 13, -5, 70]))
    changed = (pool.records != before).any(dim=1).nonzero()[:, 0]
    assert changed.tolist() == [13 // BLOCK_SIZE, 70 // BLOCK_SIZE]
    assert torch.equal(pool.layer(0).k_codes.view(torch.uint8), _bytes(pool, 0, before))
    stored = read_blocks(pool.layer(1).values, torch.tensor([13 // BLOCK_SIZE]))
    assert stored[0, :, 13 % BLOCK_SIZE].isfinite().all()
    unpadded = poisoned_pool(mode, num_layers=2)
    rows = torch.tensor([1, 3])
    store_kv(key[rows], value[rows], unpadded.layer(1), torch.tensor([13, 70]))
    assert torch.equal(pool.records, unpadded.records)


def _bytes(pool: KVPool, layer: int, records: torch.Tensor) -> torch.Tensor:
    return layer_cache(records, pool.layout, layer).k_codes.view(torch.uint8)


@pytest.mark.parametrize("mode", KV_MODES)
def test_records_wider_than_the_layout_hold_the_same(mode: str) -> None:
    metadata, (query, key, value) = whole_sequences(), tokens()
    pool = filled_pool(mode, key, value)
    wide = torch.full((NUM_BLOCKS, pool.layout.record_bytes + 32), 0xFF, dtype=torch.uint8)
    records = wide[:, : pool.layout.record_bytes]
    records.index_fill_(0, used_blocks(metadata, BLOCK_SIZE), 0)
    cache = layer_cache(records, pool.layout, 0)
    store_kv(key, value, cache, metadata.slot_mapping)
    assert torch.equal(records, pool.records)
    assert (wide[:, pool.layout.record_bytes :] == 0xFF).all()
    output = PagedAttention()(query, cache, metadata, scale=0.2)
    assert torch.equal(output, PagedAttention()(query, pool.layer(0), metadata, scale=0.2))


@pytest.mark.parametrize("mode", KV_MODES)
def test_a_block_moves_as_one_piece(mode: str) -> None:
    metadata, (query, key, value) = whole_sequences(), tokens()
    pool = filled_pool(mode, key, value)
    moved = torch.randperm(NUM_BLOCKS, generator=torch.Generator().manual_seed(1))
    elsewhere = KVPool(pool.layout, num_blocks=NUM_BLOCKS, device=CPU)
    elsewhere.records[moved] = pool.records
    renamed = AttentionMetadata(
        query_starts=metadata.query_starts,
        seq_lens=metadata.seq_lens,
        block_tables=moved[metadata.block_tables],
        slot_mapping=metadata.slot_mapping,
    )
    output = PagedAttention()(query, elsewhere.layer(0), renamed, scale=0.2)
    assert torch.equal(output, PagedAttention()(query, pool.layer(0), metadata, scale=0.2))


@pytest.mark.parametrize("compute", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("mode", KV_MODES)
def test_blocks_are_laid_side_by_side_by_head(mode: str, compute: torch.dtype) -> None:
    metadata, (_, key, value) = whole_sequences(), tokens()
    pool = filled_pool(mode, key.to(compute), value.to(compute))
    blocks = metadata.block_tables[2, :5]
    for part in (pool.layer(0).keys, pool.layer(0).values):
        room = torch.empty(2, 5, BLOCK_SIZE, part.width, dtype=compute)
        gather_blocks(part, BlockList(blocks), out=room)
        assert torch.equal(room, read_blocks(part, blocks).transpose(0, 1).to(compute))


def test_many_blocks_are_read_in_slices() -> None:
    pool = poisoned_pool("int8", block_size=16, num_blocks=90, widths=(64, 64))
    key, value = torch.randn(2, 90 * 16, 2, 64)
    store_kv(key, value, pool.layer(0), torch.arange(90 * 16))
    blocks, room = torch.arange(89, -1, -1), torch.empty(2, 90, 16, 64)
    gather_blocks(pool.layer(0).keys, BlockList(blocks), out=room)
    everything = read_blocks(pool.layer(0).keys, torch.arange(90))
    assert torch.equal(room, everything.flip(0).transpose(0, 1))


# Relative to the output's norm, random keys and values. bf16 and fp16 keep 8 and 11 bits. A step of
# int8 is 1/127 of a row's largest value (about 3 sigma), so 0.7 % of sigma a value; e4m3 rounds
# each value by up to 6 %, 2.6 % on average; 4 bits have 15 steps over about 4 sigma. Keys err in
# the weights as well, which about doubles it.
TOLERANCES = {
    "float32": 1e-5,
    "float16": 1e-3,
    "bfloat16": 5e-3,
    "fp8_e4m3": 0.06,
    "int8": 0.015,
    "int8k_int4v": 0.1,
    "int4": 0.25,
}


@pytest.mark.parametrize("decoding", [False, True])
@pytest.mark.parametrize("mode", KV_MODES)
def test_attention_over_a_pool_of_garbage_stays_close_to_float64(mode: str, decoding: bool) -> None:
    metadata, (query, key, value) = whole_sequences(), tokens()
    cache = filled_pool(mode, key, value).layer(0)
    exact = exact_attention(query, key, value, scale=0.2)
    if decoding:
        ends = torch.tensor(metadata.query_starts[1:]) - 1
        metadata, query, exact = last_tokens(metadata), query[ends], exact[ends]
    actual = PagedAttention()(query, cache, metadata, scale=0.2)
    assert actual.isfinite().all()
    assert (actual - exact).norm() / exact.norm() < TOLERANCES[mode]
    # what is stored is exactly what is read: only the order of fp32 sums differs
    expected = paged_attention_reference(query, cache, metadata, scale=0.2)
    torch.testing.assert_close(actual, expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("mode", QUANTIZED)
def test_a_window_a_softcap_and_slopes_read_the_same_rows(mode: str) -> None:
    metadata, (query, key, value) = whole_sequences(), tokens()
    cache = filled_pool(mode, key, value).layer(0)
    slopes = torch.linspace(0.02, 0.5, 6)
    for options in (
        {"window": 6},
        {"softcap": 2.0},
        {"window": 3, "softcap": 2.0},
        {"alibi_slopes": slopes, "window": 20},
    ):
        arguments = (query, cache, metadata)
        torch.testing.assert_close(
            PagedAttention()(*arguments, scale=0.2, **options),
            paged_attention_reference(*arguments, scale=0.2, **options),
            atol=2e-5,
            rtol=2e-5,
        )


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
@pytest.mark.parametrize("mode", KV_MODES)
def test_a_broken_row_shows_in_its_own_sequence_alone(mode: str, broken: float) -> None:
    metadata, (query, key, value) = whole_sequences(), tokens()
    value[3, 0, 1] = broken  # of the first sequence
    cache = filled_pool(mode, key, value).layer(0)
    output = PagedAttention()(query, cache, metadata, scale=0.2)
    assert not output[16, 0].isfinite().all()
    assert output[LENGTHS[0] :].isfinite().all()


@pytest.mark.parametrize("name", ["key", "value"])
def test_rows_of_another_shape_are_named(name: str) -> None:
    rows = {"key": torch.zeros(1, 2, WIDTH), "value": torch.zeros(1, 2, V_WIDTH)}
    rows[name] = torch.zeros(1, 3, V_WIDTH)
    with pytest.raises(ArgumentError, match=r"\[num_tokens, 2, ") as caught:
        cache = poisoned_pool("int8").layer(0)
        store_kv(rows["key"], rows["value"], cache, torch.tensor([0]))
    assert caught.value.field == name
