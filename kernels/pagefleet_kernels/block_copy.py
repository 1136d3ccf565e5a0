"""Copy whole block records inside the pool, for copy-on-write: the reference in plain torch.

records     [ block 0 | block 1 | ... ]   one record holds a block's keys, values and scales of
                                          all layers
pairs       row i: source block, destination block; a negative id is padding and copies nothing
"""

from collections import Counter

import torch

from pagefleet_kernels.checks import check, check_tensor

RECORD_ALIGNMENT = 16  # bytes that the kernel moves at once


def copy_blocks_reference(records: torch.Tensor, pairs: torch.Tensor) -> None:
    """Copy in place; no destination may be a source or stand twice."""
    check_block_copy(records, pairs)
    real = pairs[(pairs >= 0).all(dim=1)]
    if real.numel():
        check_block_ids(records, real)
        records[real[:, 1]] = records[real[:, 0]]


def check_block_copy(records: torch.Tensor, pairs: torch.Tensor) -> None:
    check_tensor(
        "records", records, shape=(None, None), dtypes=(torch.uint8,), device=records.device
    )
    check_tensor("pairs", pairs, shape=(None, 2), dtypes=(torch.int64,), device=records.device)
    check(pairs.is_contiguous(), "pairs.stride()", pairs.stride(), "(2, 1)")
    for name, size in (("shape[1]", records.shape[1]), ("stride(0)", records.stride(0))):
        check(size % RECORD_ALIGNMENT == 0, f"records.{name}", size, "a multiple of 16")
    check(records.data_ptr() % RECORD_ALIGNMENT == 0, "records", "not aligned", "at 16 bytes")


def check_block_ids(records: torch.Tensor, pairs: torch.Tensor) -> None:
    """Refuse ids past the pool and pairs that depend on the order in which they are copied; waits
    for the device, so the serving path leaves it out."""
    real = pairs[(pairs >= 0).all(dim=1)]
    largest = int(pairs.max()) if pairs.numel() else -1
    wanted = f"below the pool's {records.shape[0]} blocks"
    check(largest < records.shape[0], "pairs.max()", largest, wanted)
    sources, destinations = real[:, 0].tolist(), real[:, 1].tolist()
    twice = sorted(each for each, times in Counter(destinations).items() if times > 1)
    check(not twice, "pairs[:, 1]", twice, "each destination once")
    read = sorted(set(sources) & set(destinations))
    check(not read, "pairs[:, 1]", read, "destinations that are no source")
