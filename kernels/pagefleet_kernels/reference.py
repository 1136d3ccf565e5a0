"""Paged attention written out in plain torch: the oracle of the tests, every feature included."""

import torch

from pagefleet_kernels.metadata import AttentionMetadata
from pagefleet_kernels.quantized_cache import Fp8Cache, Int8Cache, KVCache


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


def dense_cache(cache: KVCache) -> torch.Tensor:
    """What a cache holds, all of it: [num_blocks, block_size, num_kv_heads, head_dim]."""
    if isinstance(cache, Int8Cache):
        return torch.mul(cache.codes.float(), cache.scales[..., None])
    if isinstance(cache, Fp8Cache):
        return cache.codes.float()
    assert isinstance(cache, torch.Tensor), type(cache)
    return cache


def masked_attention(
    query: torch.Tensor,  # [num_heads, query_len, head_dim]
    key: torch.Tensor,  # [num_kv_heads, seq_len, head_dim]
    value: torch.Tensor,  # [num_kv_heads, seq_len, v_head_dim]
    visible: torch.Tensor,  # [query_len, seq_len] bool
    *,
    scale: float,
    softcap: float | None,
    sinks: torch.Tensor | None,  # [num_heads]: a logit that takes weight and gives no value
) -> torch.Tensor:
    """Softmax attention in fp32: [num_heads, query_len, v_head_dim]."""
    groups = query.shape[0] // key.shape[0]
    keys = key.float().repeat_interleave(groups, dim=0)
    values = value.float().repeat_interleave(groups, dim=0)
    scores = (query.float() @ keys.transpose(1, 2)) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~visible, float("-inf"))
    if sinks is not None:
        column = sinks.float()[:, None, None].expand(-1, scores.shape[1], 1)
        scores = torch.cat([scores, column], dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., : keys.shape[1]]
    return (weights @ values).to(query.dtype)


def paged_attention_reference(
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
    """Causal attention of a packed batch over its paged cache: [num_tokens, num_heads, v_dim]."""
    block_size = key_cache.shape[1]
    keys, values = dense_cache(key_cache), dense_cache(value_cache)
    output = query.new_empty(query.shape[0], query.shape[1], values.shape[3])
    for index, seq_len in enumerate(metadata.seq_lens):
        start, stop = metadata.query_starts[index : index + 2]
        table = metadata.block_tables[index, : -(-seq_len // block_size)]
        key = keys[table].flatten(0, 1)[:seq_len]
        value = values[table].flatten(0, 1)[:seq_len]
        visible = visible_keys(
            query_len=stop - start, seq_len=seq_len, window=window, device=query.device
        )
        attended = masked_attention(
            query[start:stop].transpose(0, 1),
            key.transpose(0, 1),
            value.transpose(0, 1),
            visible,
            scale=scale,
            softcap=softcap,
            sinks=sinks,
        )
        output[start:stop] = attended.transpose(0, 1)
    return output
