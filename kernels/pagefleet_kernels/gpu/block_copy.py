"""Copy whole block records inside the pool, 16 KiB of one pair per program."""

import torch
import triton
import triton.language as tl

from pagefleet_kernels.block_copy import check_block_copy, check_block_ids

CHUNK_WORDS = 1024  # of 16 bytes


@triton.jit
def copy_blocks_kernel(
    records,  # int64 words
    pairs,  # [num_pairs, 2]
    stride_units,  # of a record, in units of 16 bytes
    record_units,
    CHUNK: tl.constexpr,
):
    pair = tl.program_id(0).to(tl.int64)
    source = tl.load(pairs + pair * 2)
    destination = tl.load(pairs + pair * 2 + 1)
    if (source >= 0) & (destination >= 0):
        # Two words of 8 bytes make the unit; products of block ids do not fit 32 bits.
        words = tl.program_id(1) * (CHUNK * 2) + tl.arange(0, CHUNK * 2)
        inside = words < record_units * 2
        data = tl.load(records + source * stride_units * 2 + words, mask=inside)
        tl.store(records + destination * stride_units * 2 + words, data, mask=inside)


def copy_blocks(records: torch.Tensor, pairs: torch.Tensor, *, debug: bool = False) -> None:
    """As `copy_blocks_reference`; ids past the pool are looked for in debug mode alone.

    records: uint8 [num_blocks, record_bytes], changed in place; pairs: int64 [num_pairs, 2].
    """
    check_block_copy(records, pairs)
    if debug:
        check_block_ids(records, pairs)
    if pairs.shape[0] == 0:
        return
    record_units = records.shape[1] // 16
    grid = (pairs.shape[0], triton.cdiv(record_units, CHUNK_WORDS))
    copy_blocks_kernel[grid](
        records.view(torch.int64),
        pairs,
        records.stride(0) // 16,
        record_units,
        CHUNK=CHUNK_WORDS,
        num_warps=8,
    )
