"""Pools full of the worst bytes, and batches of sequences over shuffled blocks."""

import random
from itertools import accumulate

import torch

from pagefleet_kernels import AttentionMetadata, KVLayout, KVPool, LayerKVShape

CPU = torch.device("cpu")
POISON = 0xFF  # not-a-number in every floating type, scales included


def poisoned_pool(
    mode: str,
    *,
    block_size: int = 8,
    num_blocks: int = 24,
    num_kv_heads: int = 2,
    widths: tuple[int, int] = (32, 16),
    num_layers: int = 1,
) -> KVPool:
    """Every layer alike; `widths` are those of a key and of a value."""
    shape = LayerKVShape(num_kv_heads=num_kv_heads, head_dim=widths[0], v_head_dim=widths[1])
    layout = KVLayout(mode=mode, block_size=block_size, layers=(shape,) * num_layers)
    pool = KVPool(layout, num_blocks=num_blocks, device=CPU)
    pool.records.fill_(POISON)
    return pool


def batch_metadata(
    batch: list[tuple[int, int]], *, block_size: int, num_blocks: int, seed: int = 0
) -> AttentionMetadata:
    """Random distinct blocks for (query_len, seq_len) sequences; slots of their last tokens."""
    ids = random.Random(seed).sample(range(num_blocks), num_blocks)
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


def used_blocks(metadata: AttentionMetadata, block_size: int) -> torch.Tensor:
    """The blocks of all sequences, without the padding of their tables."""
    pairs = zip(metadata.block_tables, metadata.seq_lens, strict=True)
    return torch.cat([table[: -(-seq_len // block_size)] for table, seq_len in pairs])
