"""Time a kernel on the GPU: replays of a captured graph, over more data than the L2 cache holds."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

Call = Callable[[], object]

LEAST_LAUNCHES = 20  # of one replay, so that its start does not count
RUN_SECONDS = 0.04
LEAST_REPLAYS, MOST_REPLAYS = 3, 50
CACHE_BYTES = 4 * (64 << 20)  # four times the L2 of the largest GPUs
MOST_BUFFERS = 64


@dataclass(frozen=True, slots=True)
class Timing:
    seconds: float  # of one call, the median of the better run
    spread: float  # between two runs, a fraction


def buffers_for(num_bytes: float) -> int:
    """How many copies of a problem to rotate among, so that none stays in the cache."""
    return max(1, min(MOST_BUFFERS, -(-CACHE_BYTES // max(1, int(num_bytes)))))


def measure(calls: Sequence[Call]) -> Timing:
    """The calls do the same work on different data."""
    for call in calls:  # compiles, and fills lazily made workspaces
        call()
    torch.cuda.synchronize()
    repeats = max(1, -(-LEAST_LAUNCHES // len(calls)))
    replay = _captured(calls, repeats)
    launches = repeats * len(calls)
    once = _run(replay, 1)
    replays = max(LEAST_REPLAYS, min(MOST_REPLAYS, int(RUN_SECONDS / max(once, 1e-6))))
    runs = sorted(_run(replay, replays) for _ in range(2))
    return Timing(runs[0] / launches, runs[1] / runs[0] - 1)


def _captured(calls: Sequence[Call], repeats: int) -> Call:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            for call in calls:
                call()
    return graph.replay


def _run(replay: Call, count: int) -> float:
    """Median seconds of a replay."""
    seconds: list[float] = []
    for _ in range(count):
        start, end = _event(), _event()
        start.record()
        replay()
        end.record()
        end.synchronize()
        seconds.append(float(start.elapsed_time(end)) / 1e3)
    return statistics.median(seconds)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
