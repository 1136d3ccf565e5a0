"""Lay the blocks of a sequence side by side, by head, in the computation's dtype."""

import torch

from pagefleet_kernels.kv_pool import FP8, CachePart
from pagefleet_kernels.row_codes import decode_rows

_SLICE_ELEMENTS = 1 << 16  # read at once, so that what lies between stays in the processor's cache


class GatherBuffer:
    """Room for blocks side by side, which grows to the largest need.

    Fresh memory would fault in new pages at every layer.
    """

    def __init__(self) -> None:
        self._storage = torch.empty(0)

    def gather(self, part: CachePart, blocks: torch.Tensor, *, dtype: torch.dtype) -> torch.Tensor:
        """These blocks as [num_kv_heads, len(blocks) * block_size, width]."""
        num_kv_heads, block_size = part.codes.shape[1:3]
        size = blocks.shape[0] * num_kv_heads * block_size * part.width
        if self._storage.numel() < size or self._storage.dtype != dtype:
            self._storage = torch.empty(size, dtype=dtype, device=blocks.device)
        room = self._storage[:size].view(num_kv_heads, blocks.shape[0], block_size, part.width)
        gather_blocks(part, blocks, out=room)
        return room.flatten(1, 2)


def gather_blocks(part: CachePart, blocks: torch.Tensor, *, out: torch.Tensor) -> None:
    """Read blocks into `out` [num_kv_heads, len(blocks), block_size, width]."""
    by_block = out.transpose(0, 1)  # [len(blocks), num_kv_heads, block_size, width]
    if part.codes.dtype == out.dtype:
        torch.index_select(part.codes, 0, blocks, out=by_block)
        return
    each = max(1, _SLICE_ELEMENTS // out[:, 0].numel())
    for start in range(0, blocks.shape[0], each):
        chosen = blocks[start : start + each]
        by_block[start : start + each].copy_(read_blocks(part, chosen))


def read_blocks(part: CachePart, blocks: torch.Tensor) -> torch.Tensor:
    """What these blocks hold: [len(blocks), num_kv_heads, block_size, width].

    Plain rows come in their own dtype, others in float32 and as stored: rotated in the 4-bit mode.
    """
    codes = part.codes
    if codes.dtype == FP8:  # torch selects by index in bytes only
        codes = codes.view(torch.uint8).index_select(0, blocks).view(FP8)
    else:
        codes = codes.index_select(0, blocks)
    scales = None if part.scales is None else part.scales.index_select(0, blocks)
    return decode_rows(part, codes, scales)
