"""What the machine itself reaches: bytes copied and bf16 matrix products per second."""

from collections.abc import Iterator

import torch

from bench.gpu.cases import Ceilings
from bench.gpu.rows import Row
from bench.gpu.timing import measure

COPY_BYTES = 2 << 30
MATMUL_SIZE = 8192
STAGE = "machine"


def rows() -> Iterator[Row]:
    """Both on random data; zeros would let the chip clock higher."""
    source = torch.randint(0, 256, (COPY_BYTES,), device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    timing = measure([lambda: target.copy_(source)])
    yield Row(
        stage=STAGE,
        name=f"copy of {COPY_BYTES >> 30} GiB, read and written",
        microseconds=timing.seconds * 1e6,
        spread=timing.spread,
        rate=2 * COPY_BYTES / timing.seconds / 1e9,
        unit="GB/s",
    )
    size = (MATMUL_SIZE, MATMUL_SIZE)
    a, b = (torch.randn(size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    timing = measure([lambda: a @ b])
    yield Row(
        stage=STAGE,
        name=f"bf16 product of {MATMUL_SIZE} cubed",
        microseconds=timing.seconds * 1e6,
        spread=timing.spread,
        rate=2 * MATMUL_SIZE**3 / timing.seconds / 1e12,
        unit="TFLOP/s",
    )


def read(measured: list[Row]) -> Ceilings | None:
    """The ceilings of these rows; None if one is missing."""
    rates = {row.unit: row.rate for row in measured if row.stage == STAGE and row.rate}
    copy, matmul = rates.get("GB/s"), rates.get("TFLOP/s")
    return None if copy is None or matmul is None else Ceilings(copy * 1e9, matmul * 1e12)
