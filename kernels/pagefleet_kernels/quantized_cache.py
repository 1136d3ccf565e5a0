"""KV caches of 8 bits: rows are quantized when they are written and dequantized when gathered.

What a row becomes depends on that row alone, so a token gives the same bytes in any batch, in any
chunk and when it is computed again. Not-a-number survives, so that a broken request is noticed.
"""

from typing import Protocol

import torch

INT8_LARGEST = 127
INT8_SMALLEST_SCALE = 1e-8  # a row of zeros has no scale of its own
SCALE_BYTES = 4
FP8 = torch.float8_e4m3fn
FP8_LARGEST = torch.finfo(FP8).max
_SLICE_ELEMENTS = 1 << 16  # read at once, so that what lies between stays in the processor's cache


class QuantizedCache(Protocol):
    """The keys or the values of one layer, by block."""

    @property
    def shape(self) -> torch.Size:
        """[num_blocks, block_size, num_kv_heads, head_dim], as of a plain cache."""

    @property
    def nbytes(self) -> int: ...

    def write(self, rows: torch.Tensor, slots: torch.Tensor) -> None:
        """Quantize rows [num_tokens, num_kv_heads, head_dim] into slots that do not repeat.

        The first row of a block clears the block: what its former owner left behind is multiplied
        by zero where it is masked, and could be not-a-number.
        """

    def read(self, blocks: torch.Tensor, out: torch.Tensor) -> None:
        """Dequantize blocks into [len(blocks), block_size, num_kv_heads, head_dim]."""


KVCache = torch.Tensor | QuantizedCache


def allocate_cache(
    shape: tuple[int, int, int, int], *, dtype: torch.dtype, device: torch.device
) -> KVCache:
    """A zeroed cache of [num_blocks, block_size, num_kv_heads, head_dim]."""
    if dtype == torch.int8:
        return Int8Cache(torch.Size(shape), device=device)
    if dtype == FP8:
        return Fp8Cache(torch.Size(shape), device=device)
    return torch.zeros(shape, dtype=dtype, device=device)


def row_bytes(width: int, dtype: torch.dtype) -> int:
    """Bytes that one row of one head takes, its scale included."""
    return width * dtype.itemsize + (SCALE_BYTES if dtype == torch.int8 else 0)


def read_blocks(cache: KVCache, blocks: torch.Tensor, out: torch.Tensor) -> None:
    """Lay blocks side by side in another number format than the cache's."""
    each = max(1, _SLICE_ELEMENTS // cache.shape[1:].numel())
    for start in range(0, blocks.shape[0], each):
        part, room = blocks[start : start + each], out[start : start + each]
        if isinstance(cache, torch.Tensor):
            room.copy_(cache.index_select(0, part))
        else:
            cache.read(part, room)


class Int8Cache:
    """Symmetric int8 with a fp32 scale per token and head, both in the block's own bytes.

    one block   [ codes: block_size x num_kv_heads x head_dim | scales: block_size x num_kv_heads ]
    """

    def __init__(self, shape: torch.Size, *, device: torch.device) -> None:
        num_blocks, block_size, num_kv_heads, head_dim = shape
        split = block_size * num_kv_heads * head_dim
        assert split % SCALE_BYTES == 0, f"the scales of blocks {tuple(shape)} are not aligned"
        num_bytes = block_size * num_kv_heads * row_bytes(head_dim, torch.int8)
        self.shape = shape
        self.records = torch.zeros(num_blocks, num_bytes, dtype=torch.int8, device=device)
        self.codes = self.records[:, :split].view(shape)
        self.scales = self.records[:, split:].view(torch.float32).view(shape[:3])

    @property
    def nbytes(self) -> int:
        return self.records.nbytes

    def write(self, rows: torch.Tensor, slots: torch.Tensor) -> None:
        codes, scales = quantize_int8(rows)
        blocks, offsets = slots // self.shape[1], slots % self.shape[1]
        self.scales.index_fill_(0, blocks[offsets == 0], 0.0)
        self.codes[blocks, offsets] = codes
        self.scales[blocks, offsets] = scales

    def read(self, blocks: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(self.codes.index_select(0, blocks))
        out.mul_(self.scales.index_select(0, blocks)[..., None])


class Fp8Cache:
    """Numbers as float8 e4m3, without a scale: 3 bits of mantissa, and saturation at +-448."""

    def __init__(self, shape: torch.Size, *, device: torch.device) -> None:
        self.shape = shape
        self.codes = torch.zeros(shape, dtype=FP8, device=device)
        every_code = torch.arange(256, dtype=torch.uint8, device=device)
        self._meaning = every_code.view(FP8).float()  # on a CPU faster than torch's conversion

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes

    def write(self, rows: torch.Tensor, slots: torch.Tensor) -> None:
        codes = quantize_fp8(rows).view(torch.uint8)
        cache = self.codes.view(torch.uint8)
        started = slots[slots % self.shape[1] == 0] // self.shape[1]
        cache.index_fill_(0, started, 0)
        cache.flatten(0, 1).index_copy_(0, slots, codes)

    def read(self, blocks: torch.Tensor, out: torch.Tensor) -> None:
        codes = self.codes.view(torch.uint8).index_select(0, blocks).flatten().int()
        torch.index_select(self._meaning.to(out.dtype), 0, codes, out=out.view(-1))


def quantize_int8(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes [..., head_dim] and the scale of each row [...]: a value is its code times that."""
    exact = rows.float()
    scales = (exact.abs().amax(dim=-1) / INT8_LARGEST).clamp_min(INT8_SMALLEST_SCALE)
    codes = (exact / scales[..., None]).round().clamp(-INT8_LARGEST, INT8_LARGEST)
    return codes.to(torch.int8), scales


def quantize_fp8(rows: torch.Tensor) -> torch.Tensor:
    """The nearest float8 e4m3 of each value."""
    return rows.float().clamp(-FP8_LARGEST, FP8_LARGEST).to(FP8)
