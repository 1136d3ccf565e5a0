"""Write the keys and values of new tokens into their cache slots."""

import torch

from pagefleet_kernels.quantized_cache import KVCache


def store_kv(
    key: torch.Tensor,  # [num_tokens, num_kv_heads, head_dim]
    value: torch.Tensor,  # [num_tokens, num_kv_heads, v_head_dim]
    key_cache: KVCache,  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache: KVCache,  # [num_blocks, block_size, num_kv_heads, v_head_dim]
    slot_mapping: torch.Tensor,  # [num_tokens] int64
) -> None:
    """Write in place; slots must not repeat."""
    _write(key, key_cache, slot_mapping)
    _write(value, value_cache, slot_mapping)


def _write(rows: torch.Tensor, cache: KVCache, slots: torch.Tensor) -> None:
    if isinstance(cache, torch.Tensor):
        cache.flatten(0, 1).index_copy_(0, slots, rows.to(cache.dtype))
    else:
        cache.write(rows, slots)
