"""PagedAttention: a packed batch attends over its paged cache.

Blocks are gathered into buffers that live as long as the engine (fresh ones would fault in new
pages at every layer), then torch's fused attention runs with the query heads of a key head read
together, never with repeated keys. Softcapping and attention sinks, which the fused operator
lacks, take the written-out path.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from pagefleet_kernels.decode_groups import DecodeGroup, decode_groups
from pagefleet_kernels.metadata import AttentionMetadata
from pagefleet_kernels.quantized_cache import KVCache, read_blocks
from pagefleet_kernels.reference import masked_attention, visible_keys


class GatherBuffer:
    """Room to lay blocks side by side in the computation's dtype; grows to the largest need."""

    def __init__(self) -> None:
        self._storage = torch.empty(0)

    def gather(self, cache: KVCache, blocks: torch.Tensor, *, dtype: torch.dtype) -> torch.Tensor:
        """These blocks as [len(blocks) * block_size, num_kv_heads, head_dim]."""
        size = blocks.shape[0] * cache.shape[1:].numel()
        if self._storage.numel() < size or self._storage.dtype != dtype:
            self._storage = torch.empty(size, dtype=dtype, device=blocks.device)
        room = self._storage[:size].view(blocks.shape[0], *cache.shape[1:])
        if isinstance(cache, torch.Tensor) and cache.dtype == dtype:
            torch.index_select(cache, 0, blocks, out=room)
        else:
            read_blocks(cache, blocks, out=room)
        return room.flatten(0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """What a layer asks for beside causal attention."""

    scale: float
    window: int | None
    softcap: float | None
    sinks: torch.Tensor | None

    @property
    def is_fused(self) -> bool:
        return self.softcap is None and self.sinks is None

    def sees_all(self, kv_len: int) -> bool:
        return self.window is None or kv_len <= self.window


class PagedAttention:
    """Computes attention; keeps its buffers for good and a step's plan from layer to layer."""

    def __init__(self) -> None:
        self._keys = GatherBuffer()
        self._values = GatherBuffer()
        self._planned: AttentionMetadata | None = None
        self._masks: dict[tuple[int, int, int | None], torch.Tensor] = {}
        self._groups: list[DecodeGroup] = []
        self._alone: list[int] = []

    def __call__(
        self,
        query: torch.Tensor,  # [num_tokens, num_heads, head_dim]
        key_cache: KVCache,  # [num_blocks, block_size, num_kv_heads, head_dim]
        value_cache: KVCache,  # [num_blocks, block_size, num_kv_heads, v_head_dim]
        metadata: AttentionMetadata,
        *,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Causal attention of the packed batch: [num_tokens, num_heads, v_head_dim]."""
        if self._planned is not metadata:
            self._plan(metadata, block_size=key_cache.shape[1], dtype=query.dtype)
        options = _Options(scale=scale, window=window, softcap=softcap, sinks=sinks)
        output = query.new_empty(query.shape[0], query.shape[1], value_cache.shape[3])
        alone: Iterable[int] = range(metadata.num_seqs)
        if options.is_fused and all(options.sees_all(each.kv_len) for each in self._groups):
            for group in self._groups:
                attended = self._attend_group(query, key_cache, value_cache, group, scale=scale)
                output.index_copy_(0, group.rows, attended)
            alone = self._alone
        for index in alone:
            start, stop = metadata.query_starts[index : index + 2]
            output[start:stop] = self._attend_one(
                query[start:stop],
                key_cache,
                value_cache,
                metadata.block_tables[index],
                seq_len=metadata.seq_lens[index],
                options=options,
            )
        return output

    def _plan(self, metadata: AttentionMetadata, *, block_size: int, dtype: torch.dtype) -> None:
        self._planned = metadata
        self._masks.clear()
        self._groups, self._alone = decode_groups(metadata, block_size=block_size, dtype=dtype)

    def _attend_group(
        self,
        query: torch.Tensor,
        key_cache: KVCache,
        value_cache: KVCache,
        group: DecodeGroup,
        *,
        scale: float,
    ) -> torch.Tensor:
        """One token each of several sequences: [group, num_heads, v_head_dim]."""
        count = group.rows.shape[0]
        num_heads, num_kv_heads = query.shape[1], key_cache.shape[2]
        key = self._keys.gather(key_cache, group.blocks, dtype=query.dtype)
        key = key.view(count, -1, *key.shape[1:])
        value = self._values.gather(value_cache, group.blocks, dtype=query.dtype)
        value = value.view(count, -1, *value.shape[1:])
        # One token sees every key, so the heads that share keys become rows of one query.
        rows = query[group.rows].view(count, num_kv_heads, num_heads // num_kv_heads, -1)
        attended = F.scaled_dot_product_attention(
            rows,
            key[:, : group.kv_len].transpose(1, 2),
            value[:, : group.kv_len].transpose(1, 2),
            attn_mask=group.mask,
            scale=scale,
        )
        return attended.reshape(count, num_heads, -1)

    def _attend_one(
        self,
        query: torch.Tensor,  # [query_len, num_heads, head_dim]
        key_cache: KVCache,
        value_cache: KVCache,
        table: torch.Tensor,
        *,
        seq_len: int,
        options: _Options,
    ) -> torch.Tensor:
        """The last tokens of one sequence: [query_len, num_heads, v_head_dim]."""
        first, blocks = _needed_blocks(
            table,
            block_size=key_cache.shape[1],
            query_len=query.shape[0],
            seq_len=seq_len,
            window=options.window,
        )
        key = self._keys.gather(key_cache, blocks, dtype=query.dtype)
        value = self._values.gather(value_cache, blocks, dtype=query.dtype)
        key, value = (each[: seq_len - first].transpose(0, 1) for each in (key, value))
        rows = query.transpose(0, 1)  # [num_heads, query_len, head_dim]
        if options.is_fused:
            return self._fused(rows, key, value, options).transpose(0, 1)
        visible = visible_keys(
            query_len=rows.shape[1],
            seq_len=key.shape[1],
            window=options.window,
            device=key.device,
        )
        return masked_attention(
            rows,
            key,
            value,
            visible,
            scale=options.scale,
            softcap=options.softcap,
            sinks=options.sinks,
        ).transpose(0, 1)

    def _fused(
        self,
        query: torch.Tensor,  # [num_heads, query_len, head_dim]
        key: torch.Tensor,  # [num_kv_heads, kv_len, head_dim]
        value: torch.Tensor,  # [num_kv_heads, kv_len, v_head_dim]
        options: _Options,
    ) -> torch.Tensor:
        query_len, kv_len = query.shape[1], key.shape[1]
        whole = query_len == kv_len and options.sees_all(kv_len)
        unmasked = whole or (query_len == 1 and options.sees_all(kv_len))
        attended = F.scaled_dot_product_attention(
            query[None],
            key[None],
            value[None],
            attn_mask=None if unmasked else self._mask(query, kv_len, options.window),
            is_causal=whole and query_len > 1,
            scale=options.scale,
            enable_gqa=query.shape[0] != key.shape[0],
        )
        return attended[0]

    def _mask(self, query: torch.Tensor, kv_len: int, window: int | None) -> torch.Tensor:
        """What the fused operator adds to the scores: [query_len, kv_len], 0 or -inf."""
        name = (query.shape[1], kv_len, window)
        if name not in self._masks:
            visible = visible_keys(
                query_len=query.shape[1], seq_len=kv_len, window=window, device=query.device
            )
            mask = torch.zeros(visible.shape, dtype=query.dtype, device=query.device)
            self._masks[name] = mask.masked_fill_(~visible, float("-inf"))
        return self._masks[name]


def _needed_blocks(
    table: torch.Tensor, *, block_size: int, query_len: int, seq_len: int, window: int | None
) -> tuple[int, torch.Tensor]:
    """The first position that any query sees, rounded down to its block, and the blocks."""
    oldest = 0 if window is None else max(0, seq_len - query_len - window + 1)
    first_block = oldest // block_size
    return first_block * block_size, table[first_block : -(-seq_len // block_size)]
