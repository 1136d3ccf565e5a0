"""Compile what later stages launch, by several processes at once, which share Triton's cache.

One processor compiles for minutes what all of them compile in a fraction; a kernel that does not
compile is left to the stage that needs it, which says why.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from bench.gpu import attention, correctness, matmuls, memory_bound
from bench.gpu.cases import Case
from bench.gpu.rows import Row

STAGE = "compile"
MOST_PROCESSES = 8
Launch = Callable[[torch.device], object]


def rows() -> Iterator[Row]:
    count = max(1, min(MOST_PROCESSES, (os.cpu_count() or 1) // 2))
    started = time.perf_counter()
    command = [sys.executable, "-m", "bench.gpu.compiling"]
    running = [subprocess.Popen([*command, str(index), str(count)]) for index in range(count)]
    codes = [each.wait() for each in running]
    yield Row(
        stage=STAGE,
        name=f"{len(launches())} kernels and comparisons by {count} processes",
        microseconds=(time.perf_counter() - started) * 1e6,
        note=f"{sum(code != 0 for code in codes)} of the processes failed",
    )


def launches() -> list[list[Launch]]:
    """What launches the same compiled code stands together: one process compiles it once."""
    cases = [
        *attention.decode_cases(),
        *attention.prefill_cases(),
        *memory_bound.cases(),
        *matmuls.cases(),
        *memory_bound.sampling_cases(),
    ]
    groups: dict[str, list[Launch]] = {}
    for case in cases:
        groups.setdefault(case.kernel or case.name, []).append(partial(launch, case))
    compared: list[list[Launch]] = [[check.compare] for check in correctness.checks()]
    return compared + list(groups.values())


def launch(case: Case, device: torch.device) -> None:
    case.prepare(device)[0]()


def share(groups: Sequence[list[Launch]], index: int, count: int) -> list[Launch]:
    """What one of several processes launches."""
    return [each for group in groups[index::count] for each in group]


def main() -> None:
    index, count = map(int, sys.argv[1:])
    device = torch.device("cuda")
    for each in share(launches(), index, count):
        try:
            each(device)
            torch.cuda.synchronize()
        except Exception as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
