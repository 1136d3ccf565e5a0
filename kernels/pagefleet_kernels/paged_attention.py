"""PagedAttention: a packed batch attends over its paged cache, in plain torch.

Blocks are gathered into buffers that live as long as the engine, then torch's fused attention runs
with the query heads of a key head read together, never with repeated keys. Softcapping, attention
sinks and position slopes, which the fused operator lacks, take the written-out path.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from pagefleet_kernels.attention_checks import check_batch, check_options
from pagefleet_kernels.decode_groups import DecodeGroup, decode_groups
from pagefleet_kernels.gather_kv import BlockList, GatherBuffer
from pagefleet_kernels.kv_layout import int4_group
from pagefleet_kernels.kv_pool import LayerCache
from pagefleet_kernels.metadata import AttentionMetadata
from pagefleet_kernels.reference import masked_attention, visible_keys
from pagefleet_kernels.rotation import rotate


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """What a layer asks for beside causal attention."""

    scale: float
    window: int | None
    softcap: float | None
    sinks: torch.Tensor | None
    alibi_slopes: torch.Tensor | None

    @property
    def is_fused(self) -> bool:
        return self.softcap is None and self.sinks is None and self.alibi_slopes is None

    def sees_all(self, kv_len: int) -> bool:
        return self.window is None or kv_len <= self.window


class PagedAttention:
    """Computes attention; keeps its buffers for good and a step's plan from layer to layer.

    Rows of a block that were not written since `KVPool.clear` must hold numbers.
    """

    def __init__(self) -> None:
        self._keys = GatherBuffer()
        self._values = GatherBuffer()
        self._planned: AttentionMetadata | None = None
        self._masks: dict[tuple[int, int, int | None], torch.Tensor] = {}
        self._groups: list[DecodeGroup] = []
        self._alone: list[int] = []
        self._needed: dict[tuple[int, int | None], tuple[int, BlockList]] = {}

    def __call__(
        self,
        query: torch.Tensor,  # [num_tokens, num_heads, head_dim]
        cache: LayerCache,
        metadata: AttentionMetadata,
        *,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
        sinks: torch.Tensor | None = None,
        alibi_slopes: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Causal attention of the packed batch: [num_tokens, num_heads, v_head_dim].

        A sequence of length 0 is padding and gives zeros.
        """
        check_options(window=window, softcap=softcap)
        if self._planned is not metadata or query.shape[0] != metadata.query_starts[-1]:
            check_batch(query.shape[0], metadata, block_size=cache.block_size)
            self._plan(metadata, block_size=cache.block_size, dtype=query.dtype)
        options = _Options(
            scale=scale, window=window, softcap=softcap, sinks=sinks, alibi_slopes=alibi_slopes
        )
        if out is None:
            out = query.new_empty(*query.shape[:2], cache.v_head_dim)
        if cache.is_rotated:
            query = rotate(query, int4_group(cache.head_dim)).to(query.dtype)
        self._attend(query, cache, metadata, options, out)
        if cache.is_rotated:
            out.copy_(rotate(out, int4_group(cache.v_head_dim)))
        return out

    def _plan(self, metadata: AttentionMetadata, *, block_size: int, dtype: torch.dtype) -> None:
        self._planned = metadata
        self._masks.clear()
        self._needed.clear()
        self._groups, self._alone = decode_groups(metadata, block_size=block_size, dtype=dtype)

    def _attend(
        self,
        query: torch.Tensor,
        cache: LayerCache,
        metadata: AttentionMetadata,
        options: _Options,
        out: torch.Tensor,
    ) -> None:
        alone: Iterable[int] = range(metadata.num_seqs)
        if options.is_fused and all(options.sees_all(each.kv_len) for each in self._groups):
            for group in self._groups:
                attended = self._attend_group(query, cache, group, scale=options.scale)
                out.index_copy_(0, group.rows, attended)
            alone = self._alone
        for index in alone:
            start, stop = metadata.query_starts[index : index + 2]
            if metadata.seq_lens[index] == 0:
                out[start:stop] = 0
                continue
            first, blocks = self._needed_blocks(index, cache.block_size, options.window)
            kv_len = metadata.seq_lens[index] - first
            out[start:stop] = self._attend_one(query[start:stop], cache, blocks, kv_len, options)

    def _attend_group(
        self, query: torch.Tensor, cache: LayerCache, group: DecodeGroup, *, scale: float
    ) -> torch.Tensor:
        """One token each of several sequences: [group, num_heads, v_head_dim]."""
        count, num_kv_heads = group.rows.shape[0], cache.num_kv_heads
        key, value = self._gather(cache, group.blocks, dtype=query.dtype)
        # One token sees every key, so the heads that share keys become rows of one query.
        rows = query[group.rows].view(count, num_kv_heads, query.shape[1] // num_kv_heads, -1)
        attended = F.scaled_dot_product_attention(
            rows,
            _by_sequence(key, group, count),
            _by_sequence(value, group, count),
            attn_mask=group.mask,
            scale=scale,
        )
        return attended.reshape(count, query.shape[1], -1)

    def _gather(
        self, cache: LayerCache, blocks: BlockList, *, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of blocks: [num_kv_heads, len(blocks) * block_size, width] each."""
        key = self._keys.gather(cache.keys, blocks, dtype=dtype)
        return key, self._values.gather(cache.values, blocks, dtype=dtype)

    def _attend_one(
        self,
        query: torch.Tensor,  # [query_len, num_heads, head_dim]
        cache: LayerCache,
        blocks: BlockList,
        kv_len: int,
        options: _Options,
    ) -> torch.Tensor:
        """The last tokens of one sequence: [query_len, num_heads, v_head_dim]."""
        key, value = self._gather(cache, blocks, dtype=query.dtype)
        key, value = key[:, :kv_len], value[:, :kv_len]
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
            alibi_slopes=options.alibi_slopes,
        ).transpose(0, 1)

    def _needed_blocks(
        self, index: int, block_size: int, window: int | None
    ) -> tuple[int, BlockList]:
        """The first position that any query of a sequence sees, rounded down to its block, and
        the blocks from there."""
        name = (index, window)
        if name not in self._needed:
            assert self._planned is not None
            start, stop = self._planned.query_starts[index : index + 2]
            seq_len = self._planned.seq_lens[index]
            oldest = 0 if window is None else max(0, seq_len - (stop - start) - window + 1)
            first = oldest // block_size
            blocks = self._planned.block_tables[index, first : -(-seq_len // block_size)]
            self._needed[name] = (first * block_size, BlockList(blocks))
        return self._needed[name]

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


def _by_sequence(rows: torch.Tensor, group: DecodeGroup, count: int) -> torch.Tensor:
    """Rows [num_kv_heads, count * padded, width] as [count, num_kv_heads, kv_len, width]."""
    num_kv_heads, length, width = rows.shape
    each = rows.view(num_kv_heads, count, length // count, width)
    return each[:, :, : group.kv_len].transpose(0, 1)
