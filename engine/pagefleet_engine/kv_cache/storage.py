"""KVStorage: the tensors that hold the keys and values of all blocks."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pagefleet_kernels import KVCache, allocate_cache, row_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKVShape:
    """What one layer stores for one token."""

    num_kv_heads: int
    head_dim: int
    v_head_dim: int

    @property
    def elements_per_token(self) -> int:
        return self.num_kv_heads * (self.head_dim + self.v_head_dim)


class KVStorage:
    """Per layer [num_blocks, block_size, num_kv_heads, head_dim] for keys, likewise for values.

    Zeroed: a masked position is multiplied by zero, and stray memory could hold a NaN.
    """

    def __init__(
        self,
        layers: Sequence[LayerKVShape],
        *,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size

        def allocate(num_kv_heads: int, width: int) -> KVCache:
            shape = (num_blocks, block_size, num_kv_heads, width)
            return allocate_cache(shape, dtype=dtype, device=device)

        self.keys = [allocate(each.num_kv_heads, each.head_dim) for each in layers]
        self.values = [allocate(each.num_kv_heads, each.v_head_dim) for each in layers]

    def clear(self, blocks: torch.Tensor) -> None:
        """Zero blocks before their first row is written: a failed request may have left a NaN.

        Quantized caches do this themselves.
        """
        for cache in (*self.keys, *self.values):
            if isinstance(cache, torch.Tensor):
                cache.index_fill_(0, blocks, 0)

    @property
    def num_bytes(self) -> int:
        return sum(each.nbytes for each in (*self.keys, *self.values))


def block_bytes(layers: Sequence[LayerKVShape], *, block_size: int, dtype: torch.dtype) -> int:
    """Bytes of one block over all layers, the scales of quantized rows included."""
    return block_size * sum(
        each.num_kv_heads * (row_bytes(each.head_dim, dtype) + row_bytes(each.v_head_dim, dtype))
        for each in layers
    )
