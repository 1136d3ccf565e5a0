"""Paged attention against the written-out reference, and both against plain attention.

Covered: mixed prefill and decode, chunks with context, shuffled blocks, grouped and single heads,
different value width, windows, softcap, sinks, slopes, padding, fp32 and bf16. Left out: CUDA.
"""

import pytest
import torch
import torch.nn.functional as F

from pagefleet_kernels import AttentionMetadata, LayerCache, PagedAttention, store_kv
from pagefleet_kernels.decode_groups import decode_groups
from pagefleet_kernels.reference import paged_attention_reference
from tests.support.kv_pools import batch_metadata, poisoned_pool

BATCHES = {
    "decode": [(1, 1), (1, 17), (1, 64), (1, 5)],
    "decode, alike": [(1, 33), (1, 40), (1, 40), (1, 64)],
    "prefill": [(7, 7), (33, 33), (1, 1)],
    "chunks": [(5, 21), (16, 40), (1, 30), (2, 3)],
}


def random_cache(
    *, num_blocks: int, block_size: int, num_kv_heads: int, widths: tuple[int, int] = (8, 12)
) -> LayerCache:
    """A plain cache that is full of random keys and values."""
    cache = poisoned_pool(
        "float32",
        num_blocks=num_blocks,
        block_size=block_size,
        num_kv_heads=num_kv_heads,
        widths=widths,
    ).layer(0)
    cache.k_codes.normal_()
    cache.v_codes.normal_()
    return cache


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
        {"alibi_slopes": True},
        {"alibi_slopes": True, "window": 9, "sinks": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("block_size", [8, 16])
def test_agrees_with_the_reference(
    batch: list[tuple[int, int]],
    heads: tuple[int, int],
    options: dict[str, object],
    block_size: int,
) -> None:
    torch.manual_seed(0)
    num_heads, num_kv_heads = heads
    metadata = batch_metadata(batch, block_size=block_size, num_blocks=64)
    cache = random_cache(num_blocks=64, block_size=block_size, num_kv_heads=num_kv_heads)
    query = torch.randn(metadata.query_starts[-1], num_heads, 8)
    for name in options.keys() & {"sinks", "alibi_slopes"}:
        options = {**options, name: torch.rand(num_heads)}
    arguments = (query, cache, metadata)
    expected = paged_attention_reference(*arguments, scale=0.3, **options)  # type: ignore[arg-type]
    actual = PagedAttention()(*arguments, scale=0.3, **options)  # type: ignore[arg-type]
    # fp32: the fused operator sums in another order than the reference
    torch.testing.assert_close(actual, expected, atol=2e-5, rtol=2e-5)
    room = torch.full_like(actual, float("nan"))
    again = PagedAttention()(*arguments, scale=0.3, out=room, **options)  # type: ignore[arg-type]
    assert again is room and torch.equal(room, actual)


def stored(metadata: AttentionMetadata, key: torch.Tensor, value: torch.Tensor) -> LayerCache:
    """A poisoned cache that holds one sequence."""
    pool = poisoned_pool("float32", widths=(8, 8))
    store_kv(key, value, pool.layer(0), metadata.slot_mapping)
    return pool.layer(0)


def test_reference_is_plain_causal_attention() -> None:
    torch.manual_seed(0)
    metadata = batch_metadata([(9, 9)], block_size=8, num_blocks=24)
    query, key, value = (torch.randn(9, 2, 8) for _ in range(3))
    cache = stored(metadata, key, value)
    actual = paged_attention_reference(query, cache, metadata, scale=0.5)
    query, key, value = (each.transpose(0, 1) for each in (query, key, value))
    expected = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=0.5)
    torch.testing.assert_close(actual, expected.transpose(0, 1))


def test_slopes_are_a_bias_that_falls_with_the_distance() -> None:
    torch.manual_seed(0)
    metadata = batch_metadata([(9, 9)], block_size=8, num_blocks=24)
    query, key, value = (torch.randn(9, 2, 8) for _ in range(3))
    slopes = torch.tensor([0.5, 0.0625])
    cache = stored(metadata, key, value)
    actual = paged_attention_reference(query, cache, metadata, scale=0.5, alibi_slopes=slopes)
    bias = -slopes[:, None, None] * (torch.arange(9)[:, None] - torch.arange(9)[None, :])
    bias = bias.masked_fill(torch.ones(9, 9).triu(1).bool(), float("-inf"))
    query, key, value = (each.transpose(0, 1) for each in (query, key, value))
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=0.5)
    torch.testing.assert_close(actual, expected.transpose(0, 1))


def test_a_padded_row_gives_zeros_and_reads_nothing() -> None:
    torch.manual_seed(0)
    full = batch_metadata([(1, 20), (1, 9)], block_size=8, num_blocks=24)
    padded = AttentionMetadata(
        query_starts=(0, 1, 2, 3),
        seq_lens=(20, 9, 0),
        block_tables=torch.cat([full.block_tables, torch.full((1, 3), 1 << 40)]),
        slot_mapping=torch.cat([full.slot_mapping, torch.tensor([-1])]),
    )
    cache = random_cache(num_blocks=24, block_size=8, num_kv_heads=2)
    query = torch.randn(3, 4, 8)
    for attention in (PagedAttention(), paged_attention_reference):
        output = attention(query, cache, padded, scale=0.3)
        assert torch.equal(output[2], torch.zeros(4, 12))
        torch.testing.assert_close(output[:2], attention(query[:2], cache, full, scale=0.3))


def test_a_broken_sequence_does_not_reach_its_neighbours() -> None:
    torch.manual_seed(0)
    metadata = batch_metadata([(1, 20), (1, 19), (4, 9)], block_size=8, num_blocks=32)
    query = torch.randn(6, 2, 8)
    cache = random_cache(num_blocks=32, block_size=8, num_kv_heads=2)
    cache.v_codes[metadata.block_tables[0]] = float("nan")
    output = PagedAttention()(query, cache, metadata, scale=0.3)
    assert output[0].isnan().all()
    assert output[1:].isfinite().all()


def test_sequences_beyond_what_is_grouped_agree_with_the_reference() -> None:
    torch.manual_seed(0)
    batch = [(1, 400), (1, 512), (1, 513), (1, 700), *[(1, 300)] * 20]
    metadata = batch_metadata(batch, block_size=16, num_blocks=600)
    groups, alone = decode_groups(metadata, block_size=16, dtype=torch.float32)
    assert (len(groups), alone) == (2, [2, 3]), "22 sequences of up to 512 tokens take two groups"
    query = torch.randn(len(batch), 6, 8)
    cache = random_cache(num_blocks=600, block_size=16, num_kv_heads=2)
    torch.testing.assert_close(
        PagedAttention()(query, cache, metadata, scale=0.3),
        paged_attention_reference(query, cache, metadata, scale=0.3),
        atol=2e-5,
        rtol=2e-5,
    )


def test_bf16_stays_close_to_fp32() -> None:
    torch.manual_seed(0)
    metadata = batch_metadata([(12, 30), (50, 50)], block_size=16, num_blocks=24)
    query = torch.randn(62, 6, 16)
    key, value = torch.randn(62, 2, 16), torch.randn(62, 2, 16)
    outputs = {}
    for mode, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        pool = poisoned_pool(mode, block_size=16, widths=(16, 16))
        pool.clear(torch.arange(24))
        store_kv(key, value, pool.layer(0), metadata.slot_mapping)
        outputs[mode] = PagedAttention()(query.to(dtype), pool.layer(0), metadata, scale=0.25)
    # bf16 keeps 8 bits: about 1 % of values near 1
    torch.testing.assert_close(
        outputs["bfloat16"].float(), outputs["float32"], atol=3e-2, rtol=3e-2
    )
