"""The queue of keys to reconcile: one key never twice at once, bursts merged, failures backed off.

add ──► due (heap by time) ──► running ──► done
         ▲                        │ added again while running, failed, or asked to requeue
         └────────────────────────┘
"""

import asyncio
import heapq
import itertools
import logging
import random
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pagefleet_operator.kube.api_errors import LeadershipLost

logger = logging.getLogger(__name__)
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Result:
    """What a reconcile asks for: to be called again after so many seconds, or not at all."""

    requeue_after: float | None = None


@dataclass(frozen=True, slots=True)
class Backoff:
    first: float = 0.5
    longest: float = 120.0
    jitter: float = 0.25

    def delay(self, failures: int, *, random_unit: float) -> float:
        exponential: float = min(self.longest, self.first * 2.0 ** min(failures - 1, 16))
        return exponential * (1.0 + self.jitter * (2.0 * random_unit - 1.0))


class WorkQueue(Generic[K]):
    """Level-triggered: a key says only "look again"; what to do is read from the cluster."""

    def __init__(
        self,
        process: Callable[[K], Awaitable[Result]],
        *,
        clock: Callable[[], float],
        debounce: float = 0.05,
        backoff: Backoff | None = None,
        random_unit: Callable[[], float] = random.random,
        observe: Callable[[float, bool], None] = lambda seconds, failed: None,
    ) -> None:
        self._process = process
        self._clock = clock
        self._debounce = debounce
        self._backoff = backoff or Backoff()
        self._random_unit = random_unit
        self._observe = observe
        self._order = itertools.count()
        self._heap: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._running: dict[K, float] = {}
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due)

    def add(self, key: K, *, delay: float | None = None) -> None:
        """Ask for a look at this key; an earlier request for it wins over a later one."""
        if key in self._running and delay is None:
            self._again.add(key)
            return
        due = self._clock() + (self._debounce if delay is None else delay)
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        heapq.heappush(self._heap, (due, next(self._order), key))
        self._wake.set()

    def forget(self, key: K) -> None:
        """The object is gone: no failure count outlives it."""
        self._failures.pop(key, None)

    def longest_running(self) -> float:
        """Seconds that the oldest unfinished reconcile has taken: the heartbeat of the loop."""
        return max((self._clock() - start for start in self._running.values()), default=0.0)

    def oldest_overdue(self) -> float:
        """Seconds by which the most overdue key has missed its time."""
        return max((self._clock() - due for due in self._due.values()), default=0.0)

    async def work(self) -> None:
        """One worker; start several."""
        while True:
            key = await self._next()
            await self._run(key)

    async def _next(self) -> K:
        while True:
            wait = self._pop_stale_and_wait()
            if wait is not None and wait <= 0:
                due, _, key = heapq.heappop(self._heap)
                del self._due[key]
                if key not in self._running:
                    self._running[key] = self._clock()
                    return key
                self._again.add(key)
                continue
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), wait)
            except TimeoutError:
                pass

    def _pop_stale_and_wait(self) -> float | None:
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] - self._clock() if self._heap else None

    async def _run(self, key: K) -> None:
        started = self._clock()
        try:
            result = await self._process(key)
        except LeadershipLost:
            del self._running[key]
            raise
        except Exception as error:
            self._finish(key, started, self._after_failure(key, error), failed=True)
        else:
            self._failures.pop(key, None)
            self._finish(key, started, result.requeue_after, failed=False)

    def _after_failure(self, key: K, error: Exception) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = self._backoff.delay(failures, random_unit=self._random_unit())
        logger.warning("%s failed %d times, again in %.1f s: %r", key, failures, delay, error)
        logger.debug("%s", key, exc_info=error)
        return delay

    def _finish(self, key: K, started: float, requeue: float | None, *, failed: bool) -> None:
        del self._running[key]
        self._observe(self._clock() - started, failed)
        if requeue is not None:
            self.add(key, delay=requeue)
        if key in self._again:
            self._again.discard(key)
            # What changed meanwhile may be the cure, so a failure does not hide it for long.
            self.add(key, delay=self._backoff.first if failed else None)
