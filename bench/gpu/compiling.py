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
MOST_PROCESSES = 12
MOST_SECONDS = 52.0  # what is not compiled by then is compiled when it is needed
Launch = Callable[[torch.device], object]


def rows() -> Iterator[Row]:
    count = max(1, min(MOST_PROCESSES, (os.cpu_count() or 1) * 3 // 4))
    started = time.perf_counter()
    command = [sys.executable, "-m", "bench.gpu.compiling"]
    running = [subprocess.Popen([*command, str(index), str(count)]) for index in range(count)]
    finished = sum(finishes(each, by=started + MOST_SECONDS) for each in running)
    yield Row(
        stage=STAGE,
        name=f"{len(launches())} kernels and comparisons",
        microseconds=(time.perf_counter() - started) * 1e6,
        note=f"{finished} of {count} processes finished",
    )


def finishes(process: subprocess.Popen[bytes], *, by: float) -> bool:
    """Whether it ends well by then; it is ended otherwise, and what it compiled is kept."""
    try:
        return process.wait(timeout=max(0.1, by - time.perf_counter())) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False


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
    comparisons: list[list[Launch]] = [[check.compare] for check in correctness.checks()]
    return comparisons + list(groups.values())


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
