"""Attention to compute: a batch whose keys and values are stored in a pool of garbage."""

import random
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch

from pagefleet_kernels import AttentionMetadata, KVPool, LayerCache, store_kv
from pagefleet_kernels.metadata import DeviceLengths
from pagefleet_kernels.reference import read_sequence
from tests.support.dense_attention import dense_attention
from tests.support.kv_pools import POISON, poisoned_pool

Batch = list[tuple[int, int]]  # (query_len, seq_len); a seq_len of 0 is a padded row
NO_BLOCK = 1 << 40  # behind the used part of a table: reading it would end the process


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    query: torch.Tensor  # [num_tokens, num_heads, head_dim]
    pool: KVPool
    layer: int
    metadata: AttentionMetadata
    options: dict[str, Any]  # of the attention functions
    keys: list[torch.Tensor]  # of each sequence, as they were before they were stored
    values: list[torch.Tensor]

    @property
    def cache(self) -> LayerCache:
        return self.pool.layer(self.layer)

    def blank(self) -> torch.Tensor:
        """Room for the result that shows what was not written."""
        shape = (*self.query.shape[:2], self.cache.v_head_dim)
        return torch.full(shape, float("nan"), dtype=self.query.dtype)


def problem(
    batch: Batch,
    *,
    mode: str = "bfloat16",
    dtype: torch.dtype = torch.bfloat16,
    heads: tuple[int, int] = (4, 1),  # of queries, of keys
    widths: tuple[int, int] = (64, 64),
    block_size: int = 16,
    features: dict[str, Any] | None = None,
    max_seq_len: int | None = None,
    poison: int = POISON,
    block_seed: int = 0,
) -> Problem:
    """Numbers depend on each sequence's place and length alone, blocks on `block_seed`."""
    counts = [-(-seq_len // block_size) for _, seq_len in batch]
    num_blocks = sum(counts) + 3
    pool = poisoned_pool(
        mode,
        block_size=block_size,
        num_blocks=num_blocks,
        num_kv_heads=heads[1],
        widths=widths,
        num_layers=2,
    )
    pool.records.fill_(poison)
    ids = random.Random(block_seed).sample(range(num_blocks), num_blocks)
    tables = torch.full((len(batch), max(counts) + 2), NO_BLOCK)
    keys, values, queries = [], [], []
    for index, ((query_len, seq_len), count) in enumerate(zip(batch, counts, strict=True)):
        mine = torch.tensor([ids.pop() for _ in range(count)], dtype=torch.int64)
        tables[index, :count] = mine
        generator = torch.Generator().manual_seed(seq_len)
        key, value = (
            torch.randn(seq_len, heads[1], width, generator=generator).to(dtype) for width in widths
        )
        position = torch.arange(seq_len)
        slots = mine[position // block_size] * block_size + position % block_size
        store_kv(key, value, pool.layer(1), slots)
        keys.append(key)
        values.append(value)
        queries.append(torch.randn(query_len, heads[0], widths[0], generator=generator).to(dtype))
    starts = (0, *accumulate(query_len for query_len, _ in batch))
    metadata = AttentionMetadata(
        query_starts=starts,
        seq_lens=tuple(seq_len for _, seq_len in batch),
        block_tables=tables,
        slot_mapping=torch.zeros(starts[-1], dtype=torch.int64),
    )
    if max_seq_len is not None:
        metadata = replace(metadata, device_lengths=lengths(batch, max_seq_len))
    return Problem(
        query=torch.cat(queries),
        pool=pool,
        layer=1,
        metadata=metadata,
        options={"scale": widths[0] ** -0.5, **_per_head(features or {}, heads[0])},
        keys=keys,
        values=values,
    )


def lengths(batch: Batch, max_seq_len: int) -> DeviceLengths:
    starts = (0, *accumulate(query_len for query_len, _ in batch))
    return DeviceLengths(
        query_starts=torch.tensor(starts, dtype=torch.int32),
        seq_lens=torch.tensor([seq_len for _, seq_len in batch], dtype=torch.int32),
        max_query_len=max(query_len for query_len, _ in batch),
        max_seq_len=max_seq_len,
    )


def exact_stored(given: Problem) -> torch.Tensor:
    """The result in float64 for the numbers that are in the cache."""
    metadata = given.metadata
    pairs = [
        read_sequence(given.cache, table, seq_len) if seq_len else None
        for table, seq_len in zip(metadata.block_tables, metadata.seq_lens, strict=True)
    ]
    return _exact(given, pairs)


def exact_unstored(given: Problem) -> torch.Tensor:
    """The result in float64 for the numbers as they were before they were stored."""
    pairs = [
        (key.transpose(0, 1), value.transpose(0, 1)) if len(key) else None
        for key, value in zip(given.keys, given.values, strict=True)
    ]
    return _exact(given, pairs)


def relative_error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


def _exact(given: Problem, pairs: list[tuple[torch.Tensor, torch.Tensor] | None]) -> torch.Tensor:
    starts, out = given.metadata.query_starts, []
    for index, pair in enumerate(pairs):
        query = given.query[starts[index] : starts[index + 1]]
        if pair is None:
            out.append(torch.zeros(*query.shape[:2], given.cache.v_head_dim, dtype=torch.float64))
        else:
            out.append(dense_attention(query, *pair, **given.options))
    return torch.cat(out)


def _per_head(features: dict[str, Any], num_heads: int) -> dict[str, Any]:
    """`sinks` and `alibi_slopes` that are True become one number a head."""
    generator = torch.Generator().manual_seed(num_heads)
    made = {
        "sinks": torch.randn(num_heads, generator=generator) * 2,
        "alibi_slopes": torch.rand(num_heads, generator=generator) * 0.1,
    }
    return {name: made[name] if value is True else value for name, value in features.items()}
