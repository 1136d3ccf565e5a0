"""Batches of sequences whose keys and values lie in a pool, at random blocks among garbage."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from pagefleet_kernels.gpu.store import store_kv
from pagefleet_kernels.kv_layout import KVLayout, LayerKVShape
from pagefleet_kernels.kv_pool import KVPool, LayerCache
from pagefleet_kernels.metadata import AttentionMetadata, DeviceLengths

GARBAGE = 0xFF  # not-a-number in every floating type, scales included
SPARE_BLOCKS = 8
STORED_AT_ONCE = 1 << 16  # tokens

Store = Callable[[torch.Tensor, torch.Tensor, LayerCache, torch.Tensor], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """One layer's attention on one rank."""

    num_heads: int = 32
    num_kv_heads: int = 8
    head_dim: int = 128
    v_head_dim: int | None = None  # None: as wide as a key

    @property
    def value_dim(self) -> int:
        return self.v_head_dim or self.head_dim

    def __str__(self) -> str:
        widths = f"{self.head_dim}" + (f"+{self.v_head_dim}" if self.v_head_dim else "")
        return f"{self.num_heads}/{self.num_kv_heads}/{widths}"


LLAMA_8B = Heads()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    query: torch.Tensor  # [num_tokens, num_heads, head_dim]
    pool: KVPool
    metadata: AttentionMetadata
    scale: float


def make_batch(
    sequences: Sequence[tuple[int, int]],  # (query_len, cached) of each
    *,
    mode: str,
    heads: Heads,
    device: torch.device,
    block_size: int = 16,
    num_layers: int = 1,
    store: Store = store_kv,
    dtype: torch.dtype = torch.bfloat16,
    block_seed: int = 1,
) -> Batch:
    """Keys and values of all layers are random and stored as a forward would."""
    generator = torch.Generator(device).manual_seed(0)
    lengths = [query + cached for query, cached in sequences]
    tables, num_blocks = _tables(lengths, block_size, device, seed=block_seed)
    layer = LayerKVShape(
        num_kv_heads=heads.num_kv_heads, head_dim=heads.head_dim, v_head_dim=heads.value_dim
    )
    layout = KVLayout(mode=mode, block_size=block_size, layers=(layer,) * num_layers)
    pool = KVPool(layout, num_blocks=num_blocks, device=device)
    pool.records.fill_(GARBAGE)
    slots = _slots(tables, lengths, block_size)  # [sum of lengths]
    for start in range(0, len(slots), STORED_AT_ONCE):
        part = slots[start : start + STORED_AT_ONCE]
        shape = (len(part), heads.num_kv_heads)
        key, value = (
            torch.randn(*shape, width, generator=generator, device=device, dtype=dtype)
            for width in (heads.head_dim, heads.value_dim)
        )
        for index in range(num_layers):
            store(key, value, pool.layer(index), part)
    queries = [query for query, _ in sequences]
    size = (sum(queries), heads.num_heads, heads.head_dim)
    return Batch(
        query=torch.randn(size, generator=generator, device=device, dtype=dtype),
        pool=pool,
        metadata=_metadata(queries, lengths, tables),
        scale=heads.head_dim**-0.5,
    )


def _tables(
    lengths: Sequence[int], block_size: int, device: torch.device, *, seed: int
) -> tuple[torch.Tensor, int]:
    """Block tables [num_seqs, most blocks] in random order, and how many blocks there are."""
    counts = [-(-length // block_size) for length in lengths]
    num_blocks = sum(counts) + SPARE_BLOCKS
    ids = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(seed))
    tables = torch.zeros(len(lengths), max(counts), dtype=torch.int64)
    starts = [0, *accumulate(counts)]
    for row, start, count in zip(tables, starts, counts, strict=False):
        row[:count] = ids[start : start + count]
    return tables.to(device), num_blocks


def _slots(tables: torch.Tensor, lengths: Sequence[int], block_size: int) -> torch.Tensor:
    parts = []
    for table, length in zip(tables, lengths, strict=True):
        position = torch.arange(length, device=tables.device)
        parts.append(table[position // block_size] * block_size + position % block_size)
    return torch.cat(parts)


def _metadata(
    queries: Sequence[int], lengths: Sequence[int], tables: torch.Tensor
) -> AttentionMetadata:
    starts = (0, *accumulate(queries))
    device = tables.device
    return AttentionMetadata(
        query_starts=starts,
        seq_lens=tuple(lengths),
        block_tables=tables,
        slot_mapping=torch.zeros(starts[-1], dtype=torch.int64, device=device),
        device_lengths=DeviceLengths(
            query_starts=torch.tensor(starts, dtype=torch.int32, device=device),
            seq_lens=torch.tensor(lengths, dtype=torch.int32, device=device),
            max_query_len=max(queries),
            max_seq_len=max(lengths),
        ),
    )
