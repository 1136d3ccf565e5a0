"""Paged attention against the written-out reference, and both against plain attention.

Covered: mixed prefill and decode, chunks with context, shuffled blocks, grouped and single heads,
different value width, windows, softcap, sinks, fp32 and bf16. Left out: CUDA.
"""

import random
from itertools import accumulate

import pytest
import torch
import torch.nn.functional as F

from pagefleet_kernels import AttentionMetadata, PagedAttention, store_kv
from pagefleet_kernels.decode_groups import decode_groups
from pagefleet_kernels.reference import paged_attention_reference

BATCHES = {
    "decode": [(1, 1), (1, 17), (1, 64), (1, 5)],
    "decode, alike": [(1, 33), (1, 40), (1, 40), (1, 64)],
    "prefill": [(7, 7), (33, 33), (1, 1)],
    "chunks": [(5, 21), (16, 40), (1, 30), (2, 3)],
}


def metadata_for(
    batch: list[tuple[int, int]], *, block_size: int, num_blocks: int
) -> AttentionMetadata:
    """Random distinct blocks for (query_len, seq_len) sequences."""
    ids = random.Random(0).sample(range(num_blocks), num_blocks)
    counts = [-(-seq_len // block_size) for _, seq_len in batch]
    tables = torch.zeros(len(batch), max(counts), dtype=torch.int64)
    slots: list[int] = []
    for row, (query_len, seq_len), count in zip(tables, batch, counts, strict=True):
        mine = [ids.pop() for _ in range(count)]
        row[:count] = torch.tensor(mine)
        slots += [
            mine[position // block_size] * block_size + position % block_size
            for position in range(seq_len - query_len, seq_len)
        ]
    return AttentionMetadata(
        query_starts=(0, *accumulate(query_len for query_len, _ in batch)),
        seq_lens=tuple(seq_len for _, seq_len in batch),
        block_tables=tables,
        slot_mapping=torch.tensor(slots),
    )


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("heads", [(6, 2), (4, 4), (5, 1)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"window": 1},
        {"window": 9},
        {"softcap": 3.0},
        {"sinks": True},
        {"window": 6, "softcap": 2.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_agrees_with_the_reference(
    batch: list[tuple[int, int]],
    heads: tuple[int, int],
    options: dict[str, object],
    block_size: int,
) -> None:
    torch.manual_seed(0)
    num_heads, num_kv_heads = heads
    metadata = metadata_for(batch, block_size=block_size, num_blocks=200)
    query = torch.randn(metadata.query_starts[-1], num_heads, 8)
    key_cache = torch.randn(200, block_size, num_kv_heads, 8)
    value_cache = torch.randn(200, block_size, num_kv_heads, 12)
    if options.get("sinks"):
        options = {**options, "sinks": torch.randn(num_heads)}
    arguments = (query, key_cache, value_cache, metadata)
    expected = paged_attention_reference(*arguments, scale=0.3, **options)  # type: ignore[arg-type]
    actual = PagedAttention()(*arguments, scale=0.3, **options)  # type: ignore[arg-type]
    # fp32: the fused operator sums in another order than the reference
    torch.testing.assert_close(actual, expected, atol=2e-5, rtol=2e-5)


def test_reference_is_plain_causal_attention() -> None:
    torch.manual_seed(0)
    metadata = metadata_for([(9, 9)], block_size=4, num_blocks=8)
    query, key, value = (torch.randn(9, 2, 8) for _ in range(3))
    key_cache, value_cache = torch.zeros(8, 4, 2, 8), torch.zeros(8, 4, 2, 8)
    store_kv(key, value, key_cache, value_cache, metadata.slot_mapping)
    actual = paged_attention_reference(query, key_cache, value_cache, metadata, scale=0.5)
    query, key, value = (each.transpose(0, 1) for each in (query, key, value))
    expected = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=0.5)
    torch.testing.assert_close(actual, expected.transpose(0, 1))


def test_stored_tokens_land_in_their_slots_and_nowhere_else() -> None:
    key_cache, value_cache = torch.zeros(4, 2, 1, 3), torch.zeros(4, 2, 1, 5)
    key, value = torch.ones(2, 1, 3), 2 * torch.ones(2, 1, 5)
    store_kv(key, value, key_cache, value_cache, torch.tensor([5, 0]))
    assert key_cache.sum(dim=(2, 3)).tolist() == [[3, 0], [0, 0], [0, 3], [0, 0]]
    assert value_cache.sum(dim=(2, 3)).tolist() == [[10, 0], [0, 0], [0, 10], [0, 0]]


def test_a_broken_sequence_does_not_reach_its_neighbours() -> None:
    torch.manual_seed(0)
    metadata = metadata_for([(1, 20), (1, 19), (4, 9)], block_size=4, num_blocks=32)
    query = torch.randn(6, 2, 8)
    key_cache, value_cache = torch.randn(32, 4, 2, 8), torch.randn(32, 4, 2, 8)
    value_cache[metadata.block_tables[0]] = float("nan")
    output = PagedAttention()(query, key_cache, value_cache, metadata, scale=0.3)
    assert output[0].isnan().all()
    assert output[1:].isfinite().all()


def test_sequences_beyond_what_is_grouped_agree_with_the_reference() -> None:
    torch.manual_seed(0)
    batch = [(1, 400), (1, 512), (1, 513), (1, 700), *[(1, 300)] * 20]
    metadata = metadata_for(batch, block_size=16, num_blocks=600)
    groups, alone = decode_groups(metadata, block_size=16, dtype=torch.float32)
    assert (len(groups), alone) == (2, [2, 3]), "22 sequences of up to 512 tokens take two groups"
    query = torch.randn(len(batch), 6, 8)
    key_cache, value_cache = torch.randn(600, 16, 2, 8), torch.randn(600, 16, 2, 8)
    arguments = (query, key_cache, value_cache, metadata)
    torch.testing.assert_close(
        PagedAttention()(*arguments, scale=0.3),
        paged_attention_reference(*arguments, scale=0.3),
        atol=2e-5,
        rtol=2e-5,
    )


def test_bf16_stays_close_to_fp32() -> None:
    torch.manual_seed(0)
    metadata = metadata_for([(1, 50), (12, 30)], block_size=16, num_blocks=16)
    query = torch.randn(13, 6, 16)
    key_cache, value_cache = torch.randn(16, 16, 2, 16), torch.randn(16, 16, 2, 16)
    expected = paged_attention_reference(query, key_cache, value_cache, metadata, scale=0.25)
    actual = PagedAttention()(
        query.bfloat16(), key_cache.bfloat16(), value_cache.bfloat16(), metadata, scale=0.25
    )
    # bf16 keeps 8 bits: about 1 % of values near 1
    torch.testing.assert_close(actual.float(), expected, atol=3e-2, rtol=3e-2)
