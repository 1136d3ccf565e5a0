"""Write the keys and values of new tokens into their cache slots."""

import torch


def store_kv(
    key: torch.Tensor,  # [num_tokens, num_kv_heads, head_dim]
    value: torch.Tensor,  # [num_tokens, num_kv_heads, v_head_dim]
    key_cache: torch.Tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache: torch.Tensor,  # [num_blocks, block_size, num_kv_heads, v_head_dim]
    slot_mapping: torch.Tensor,  # [num_tokens] int64
) -> None:
    """Write in place; slots must not repeat."""
    key_cache.flatten(0, 1).index_copy_(0, slot_mapping, key.to(key_cache.dtype))
    value_cache.flatten(0, 1).index_copy_(0, slot_mapping, value.to(value_cache.dtype))
