"""The copy of block records in the interpreter.

Covered: bit-exactness over sizes that do not fill a chunk, strided records, padding, ids far past
2 GiB, refusals. Left out: speed.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pagefleet_kernels.block_copy import copy_blocks_reference
from pagefleet_kernels.errors import ArgumentError
from pagefleet_kernels.gpu.block_copy import copy_blocks

ROOT = Path(__file__).resolve().parents[2]

FAR_COPY = """
from tests.support import triton_interpreter
triton_interpreter.install()
import torch
from pagefleet_kernels.gpu.block_copy import copy_blocks
record = 1 << 14
pool = torch.empty((1 << 31) + 4 * record, dtype=torch.uint8).view(-1, record)  # lazily mapped
last = pool.shape[0] - 1
pool[last] = torch.arange(record).to(torch.uint8)
copy_blocks(pool, torch.tensor([[last, last - 1]]))
assert torch.equal(pool[last - 1], pool[last])
"""


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


def test_a_block_past_two_gibibytes_is_found() -> None:
    roots = [ROOT, ROOT / "kernels"]
    done = subprocess.run(
        [sys.executable, "-c", FAR_COPY],
        env={"PYTHONPATH": ":".join(map(str, roots)), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


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
    ],
)
def test_what_would_copy_wrong_bytes_is_refused(
    records: torch.Tensor, pairs: torch.Tensor, named: str
) -> None:
    with pytest.raises(ArgumentError, match=named):
        copy_blocks(records, pairs, debug=True)
