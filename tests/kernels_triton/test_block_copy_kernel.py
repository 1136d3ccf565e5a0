"""The copy of block records in the interpreter.

Covered: bit-exactness over sizes that do not fill a chunk, strided records, padding,
refusals. Far addresses are in test_far_addresses.py. Left out: speed.
"""

import pytest
import torch

from pagefleet_kernels.block_copy import copy_blocks_reference
from pagefleet_kernels.errors import ArgumentError
from pagefleet_kernels.gpu.block_copy import copy_blocks


def pool(num_blocks: int, record_bytes: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(record_bytes)
    size = (num_blocks, record_bytes)
    return torch.randint(0, 256, size, generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize("record_bytes", [16, 48, 4096, 16384, 16400, 40000])
def test_copies_whole_records_and_nothing_else(record_bytes: int) -> None:
    records = pool(9, record_bytes)
    pairs = torch.tensor([[8, 0], [3, 5], [-1, 4], [7, -1], [3, 6]])
    expected = records.clone()
    copy_blocks_reference(expected, pairs)
    assert torch.equal(expected[5], records[3]) and torch.equal(expected[4], records[4])
    copy_blocks(records, pairs, debug=True)
    assert torch.equal(records, expected)


def test_the_bytes_between_strided_records_are_left_alone() -> None:
    whole = pool(6, 640)
    before = whole.clone()
    copy_blocks(whole[:, 64:368], torch.tensor([[5, 1]]))
    before[1, 64:368] = before[5, 64:368]
    assert torch.equal(whole, before)


@pytest.mark.parametrize("num_blocks", [0, 4])
def test_no_pairs_are_nothing_to_do(num_blocks: int) -> None:
    records = pool(num_blocks, 64)
    before = records.clone()
    copy_blocks(records, torch.zeros(0, 2, dtype=torch.int64), debug=True)
    assert torch.equal(records, before)


@pytest.mark.parametrize(
    ("records", "pairs", "named"),
    [
        (pool(4, 64).view(torch.int8), torch.zeros(1, 2, dtype=torch.int64), "records.dtype"),
        (pool(4, 64)[0], torch.zeros(1, 2, dtype=torch.int64), "records.shape"),
        (pool(4, 64)[:, ::2], torch.zeros(1, 2, dtype=torch.int64), r"records.stride\(-1\)"),
        (pool(4, 56), torch.zeros(1, 2, dtype=torch.int64), r"records.shape\[1\]"),
        (pool(4, 64)[:, 8:24], torch.zeros(1, 2, dtype=torch.int64), "records='not aligned'"),
        (pool(4, 64), torch.zeros(1, 2, dtype=torch.int32), "pairs.dtype"),
        (pool(4, 64), torch.zeros(1, 3, dtype=torch.int64), "pairs.shape"),
        (pool(4, 64), torch.zeros(2, 1, dtype=torch.int64).T.expand(2, 2), "pairs.stride"),
        (pool(4, 64), torch.tensor([[1, 4]]), r"pairs.max\(\)=4: must be below the pool's 4"),
        (pool(4, 64), torch.tensor([[1, 3], [0, 3]]), r"=\[3\]: must be each destination once"),
        (pool(4, 64), torch.tensor([[1, 3], [0, 1]]), r"=\[1\]: must be destinations that are no"),
        (pool(4, 64), torch.tensor([[2, 2]]), r"=\[2\]: must be destinations that are no source"),
    ],
)
def test_what_would_copy_wrong_bytes_is_refused(
    records: torch.Tensor, pairs: torch.Tensor, named: str
) -> None:
    with pytest.raises(ArgumentError, match=named):
        copy_blocks(records, pairs, debug=True)
