"""Lay the blocks of sequences side by side, by head, in the computation's dtype."""

import torch

from pagefleet_kernels.kv_pool import FP8, CachePart
from pagefleet_kernels.row_codes import decode_rows

_SLICE_ELEMENTS = 1 << 16  # read at once, so that what lies between stays in the processor's cache


class BlockList:
    """Blocks to read, and where each of their heads starts in a pool."""

    def __init__(self, blocks: torch.Tensor) -> None:
        self.blocks = blocks  # [num_blocks] int64
        self._heads: dict[tuple[int, int], torch.Tensor] = {}

    def __len__(self) -> int:
        return self.blocks.shape[0]

    def heads(self, *, num_kv_heads: int, record_heads: int) -> torch.Tensor:
        """Rows of a table of heads, of which a record has `record_heads`: by head, then block."""
        name = (num_kv_heads, record_heads)
        if name not in self._heads:
            head = torch.arange(num_kv_heads, device=self.blocks.device)[:, None]
            self._heads[name] = (self.blocks * record_heads + head).flatten()
        return self._heads[name]


class GatherBuffer:
    """Room for blocks side by side, which grows to the largest need.

    Fresh memory would fault in new pages at every layer.
    """

    def __init__(self) -> None:
        self._storage = torch.empty(0)

    def gather(self, part: CachePart, blocks: BlockList, *, dtype: torch.dtype) -> torch.Tensor:
        """These blocks as [num_kv_heads, len(blocks) * block_size, width]."""
        num_kv_heads, block_size = part.codes.shape[1:3]
        size = len(blocks) * num_kv_heads * block_size * part.width
        if self._storage.numel() < size or self._storage.dtype != dtype:
            self._storage = torch.empty(size, dtype=dtype, device=part.codes.device)
        room = self._storage[:size].view(num_kv_heads, len(blocks), block_size, part.width)
        gather_blocks(part, blocks, out=room)
        return room.flatten(1, 2)


def gather_blocks(part: CachePart, blocks: BlockList, *, out: torch.Tensor) -> None:
    """Read blocks into contiguous `out` [num_kv_heads, len(blocks), block_size, width]."""
    if part.codes.dtype == out.dtype:
        _gather_plain(part.codes, blocks, out)
        return
    by_block = out.transpose(0, 1)  # [len(blocks), num_kv_heads, block_size, width]
    each = max(1, _SLICE_ELEMENTS // out[:, 0].numel())
    for start in range(0, len(blocks), each):
        chosen = blocks.blocks[start : start + each]
        by_block[start : start + each].copy_(read_blocks(part, chosen))


def _gather_plain(codes: torch.Tensor, blocks: BlockList, out: torch.Tensor) -> None:
    """Where a record is a whole number of heads, copy heads: pieces as long as a block allows."""
    num_blocks, num_kv_heads = codes.shape[:2]
    record, head = codes.stride()[:2]
    if record % head:
        torch.index_select(codes, 0, blocks.blocks, out=out.transpose(0, 1))
        return
    record_heads = record // head
    heads = codes.as_strided(((num_blocks - 1) * record_heads + num_kv_heads, head), (head, 1))
    chosen = blocks.heads(num_kv_heads=num_kv_heads, record_heads=record_heads)
    torch.index_select(heads, 0, chosen, out=out.view(-1, head))


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
