"""PagedAttention: a packed batch attends over its paged cache.

Each sequence's blocks are gathered into buffers that live as long as the engine (fresh ones would
fault in new pages at every layer), then torch's fused attention runs with the query heads of a
key head read together, never with repeated keys. Softcapping and attention sinks, which the fused
operator lacks, take the written-out path.
"""

import torch
import torch.nn.functional as F

from pagefleet_kernels.metadata import AttentionMetadata
from pagefleet_kernels.reference import masked_attention, visible_keys


class GatherBuffer:
    """Room to lay one sequence's blocks side by side; grows to the largest need."""

    def __init__(self) -> None:
        self._storage = torch.empty(0)

    def gather(self, cache: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """The blocks of `table` as [len(table) * block_size, num_kv_heads, head_dim]."""
        size = table.shape[0] * cache[0].numel()
        if self._storage.numel() < size or self._storage.dtype != cache.dtype:
            self._storage = torch.empty(size, dtype=cache.dtype, device=cache.device)
        room = self._storage[:size].view(table.shape[0], *cache.shape[1:])
        torch.index_select(cache, 0, table, out=room)
        return room.flatten(0, 1)


class PagedAttention:
    """Computes attention; keeps its buffers, and this step's masks, from layer to layer."""

    def __init__(self) -> None:
        self._keys = GatherBuffer()
        self._values = GatherBuffer()
        self._masks: dict[tuple[int, int, int | None], torch.Tensor] = {}
        self._masks_of: AttentionMetadata | None = None

    def __call__(
        self,
        query: torch.Tensor,  # [num_tokens, num_heads, head_dim]
        key_cache: torch.Tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
        value_cache: torch.Tensor,  # [num_blocks, block_size, num_kv_heads, v_head_dim]
        metadata: AttentionMetadata,
        *,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Causal attention of the packed batch: [num_tokens, num_heads, v_head_dim]."""
        if self._masks_of is not metadata:
            self._masks.clear()
            self._masks_of = metadata
        output = query.new_empty(query.shape[0], query.shape[1], value_cache.shape[3])
        for index, seq_len in enumerate(metadata.seq_lens):
            start, stop = metadata.query_starts[index : index + 2]
            first, table = self._needed(
                metadata.block_tables[index],
                block_size=key_cache.shape[1],
                query_len=stop - start,
                seq_len=seq_len,
                window=window,
            )
            key = self._keys.gather(key_cache, table)[: seq_len - first].transpose(0, 1)
            value = self._values.gather(value_cache, table)[: seq_len - first].transpose(0, 1)
            rows = query[start:stop].transpose(0, 1)  # [num_heads, query_len, head_dim]
            if softcap is None and sinks is None:
                attended = self._fused(rows, key, value, scale=scale, window=window)
            else:
                attended = masked_attention(
                    rows,
                    key,
                    value,
                    visible_keys(
                        query_len=stop - start,
                        seq_len=key.shape[1],
                        window=window,
                        device=key.device,
                    ),
                    scale=scale,
                    softcap=softcap,
                    sinks=sinks,
                )
            output[start:stop] = attended.transpose(0, 1)
        return output

    def _needed(
        self,
        table: torch.Tensor,
        *,
        block_size: int,
        query_len: int,
        seq_len: int,
        window: int | None,
    ) -> tuple[int, torch.Tensor]:
        """The first position that any query sees, rounded down to its block, and the blocks."""
        oldest = 0 if window is None else max(0, seq_len - query_len - window + 1)
        first_block = oldest // block_size
        return first_block * block_size, table[first_block : -(-seq_len // block_size)]

    def _fused(
        self,
        query: torch.Tensor,  # [num_heads, query_len, head_dim]
        key: torch.Tensor,  # [num_kv_heads, kv_len, head_dim]
        value: torch.Tensor,  # [num_kv_heads, kv_len, v_head_dim]
        *,
        scale: float,
        window: int | None,
    ) -> torch.Tensor:
        num_heads, query_len, head_dim = query.shape
        num_kv_heads, kv_len, _ = key.shape
        groups = num_heads // num_kv_heads
        if query_len == 1 and (window is None or kv_len <= window):
            # One token sees every key, so the heads that share keys become rows of one query.
            grouped = query.reshape(1, num_kv_heads, groups, head_dim)
            attended = F.scaled_dot_product_attention(grouped, key[None], value[None], scale=scale)
            return attended.reshape(num_heads, 1, -1)
        whole = query_len == kv_len and (window is None or kv_len <= window)
        attended = F.scaled_dot_product_attention(
            query[None],
            key[None],
            value[None],
            attn_mask=None if whole else self._mask(query, kv_len, window),
            is_causal=whole,
            scale=scale,
            enable_gqa=groups > 1,
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
