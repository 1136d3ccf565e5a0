"""Paged attention written out in plain torch: the oracle of the tests, every feature included."""

import torch

from pagefleet_kernels.attention_checks import check_batch, check_options
from pagefleet_kernels.gather_kv import read_blocks
from pagefleet_kernels.kv_layout import int4_group
from pagefleet_kernels.kv_pool import CachePart, LayerCache
from pagefleet_kernels.metadata import AttentionMetadata
from pagefleet_kernels.rotation import rotate


def visible_keys(
    *, query_len: int, seq_len: int, window: int | None, device: torch.device
) -> torch.Tensor:
    """Which keys each of the last `query_len` positions may see: [query_len, seq_len] bool."""
    positions = torch.arange(seq_len - query_len, seq_len, device=device)[:, None]
    keys = torch.arange(seq_len, device=device)[None, :]
    visible = keys <= positions
    if window is not None:
        visible &= keys > positions - window
    return visible


def masked_attention(
    query: torch.Tensor,  # [num_heads, query_len, head_dim]
    key: torch.Tensor,  # [num_kv_heads, seq_len, head_dim]
    value: torch.Tensor,  # [num_kv_heads, seq_len, v_head_dim]
    visible: torch.Tensor,  # [query_len, seq_len] bool
    *,
    scale: float,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,  # [num_heads]: a logit that takes weight and gives no value
    alibi_slopes: torch.Tensor | None = None,  # [num_heads]: a logit falls so much per position
) -> torch.Tensor:
    """Softmax attention in fp32: [num_heads, query_len, v_head_dim]."""
    groups = query.shape[0] // key.shape[0]
    keys = key.float().repeat_interleave(groups, dim=0)
    values = value.float().repeat_interleave(groups, dim=0)
    scores = (query.float() @ keys.transpose(1, 2)) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if alibi_slopes is not None:
        scores = scores - alibi_slopes.float()[:, None, None] * distances(visible)
    scores = scores.masked_fill(~visible, float("-inf"))
    if sinks is not None:
        column = sinks.float()[:, None, None].expand(-1, scores.shape[1], 1)
        scores = torch.cat([scores, column], dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., : keys.shape[1]]
    return (weights @ values).to(query.dtype)


def distances(visible: torch.Tensor) -> torch.Tensor:
    """How far each key lies before each of the last positions: [query_len, seq_len]."""
    query_len, seq_len = visible.shape
    positions = torch.arange(seq_len - query_len, seq_len, device=visible.device)[:, None]
    return positions - torch.arange(seq_len, device=visible.device)


def read_sequence(
    cache: LayerCache, table: torch.Tensor, seq_len: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """A sequence's keys and values as attention means them: [num_kv_heads, seq_len, width]."""
    blocks = table[: -(-seq_len // cache.block_size)]
    key, value = (
        _read(part, blocks, is_rotated=cache.is_rotated)[:, :seq_len]
        for part in (cache.keys, cache.values)
    )
    return key, value


def _read(part: CachePart, blocks: torch.Tensor, *, is_rotated: bool) -> torch.Tensor:
    rows = read_blocks(part, blocks).transpose(0, 1).flatten(1, 2)
    return rotate(rows, int4_group(part.width)) if is_rotated else rows


def paged_attention_reference(
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
    """Causal attention of a packed batch over its paged cache: [num_tokens, num_heads, v_dim]."""
    check_options(window=window, softcap=softcap)
    check_batch(query.shape[0], metadata, block_size=cache.block_size)
    if out is None:
        out = query.new_empty(*query.shape[:2], cache.v_head_dim)
    for index, seq_len in enumerate(metadata.seq_lens):
        start, stop = metadata.query_starts[index : index + 2]
        if seq_len == 0:
            out[start:stop] = 0
            continue
        key, value = read_sequence(cache, metadata.block_tables[index], seq_len)
        visible = visible_keys(
            query_len=stop - start, seq_len=seq_len, window=window, device=query.device
        )
        attended = masked_attention(
            query[start:stop].transpose(0, 1),
            key,
            value,
            visible,
            scale=scale,
            softcap=softcap,
            sinks=sinks,
            alibi_slopes=alibi_slopes,
        )
        out[start:stop] = attended.transpose(0, 1)
    return out
