"""What the front end observes of requests: latencies, and how each one ended."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from pagefleet_engine.request import FinishReason

LATENCY_BUCKETS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 2560.0),
)


class Histogram:
    """Counts of observations by bucket, and their sum."""

    def __init__(self, bounds: Sequence[float] = LATENCY_BUCKETS) -> None:
        self._bounds = tuple(bounds)
        self._labels = (*(str(bound) for bound in bounds), "+Inf")
        self._counts = [0] * len(self._labels)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts by upper bound, as Prometheus wants them."""
        cumulative = accumulate(self._counts)
        return list(zip(self._labels, cumulative, strict=True))


class RequestMetrics:
    """What the front end observes of requests; a request is finished once, with one reason."""

    def __init__(self) -> None:
        self.time_to_first_token = Histogram()
        self.inter_token_latency = Histogram()
        self.queue_time = Histogram()
        self.duration = Histogram()
        self.finished: dict[FinishReason, int] = dict.fromkeys(FinishReason, 0)

    def finish(self, reason: FinishReason, *, seconds: float) -> None:
        self.finished[reason] += 1
        self.duration.observe(seconds)
