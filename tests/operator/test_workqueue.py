"""The work queue: per-key serial, bursts merged, failures backed off, requeues honoured."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from pagefleet_operator.kube.api_errors import LeadershipLost
from pagefleet_operator.process.workqueue import Backoff, Result, WorkQueue

Process = Callable[[str], "asyncio.Future[Result]"]


class Recorder:
    """A process function that notes each call and can be held, failed or told to requeue."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.running = 0
        self.most_at_once = 0
        self.gate: asyncio.Event | None = None
        self.failures_left = 0
        self.result = Result()

    async def __call__(self, key: str) -> Result:
        self.calls.append(key)
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            if self.gate is not None:
                await self.gate.wait()
            await asyncio.sleep(0)
            if self.failures_left:
                self.failures_left -= 1
                raise RuntimeError("not yet")
            return self.result
        finally:
            self.running -= 1


def queue_of(recorder: Recorder) -> WorkQueue[str]:
    loop = asyncio.get_running_loop()
    return WorkQueue(
        recorder,
        clock=loop.time,
        debounce=0.001,
        backoff=Backoff(first=0.001, longest=0.004, jitter=0.0),
    )


@asynccontextmanager
async def workers(queue: WorkQueue[str], count: int = 3) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(queue.work()) for _ in range(count)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_burst_for_one_key_is_one_look() -> None:
    recorder = Recorder()
    queue = queue_of(recorder)
    for _ in range(50):
        queue.add("a")
    async with workers(queue):
        await until(lambda: recorder.calls == ["a"] and recorder.running == 0)
        await asyncio.sleep(0.01)
    assert recorder.calls == ["a"]


async def test_one_key_never_runs_twice_at_once_and_looks_again_after() -> None:
    recorder = Recorder()
    recorder.gate = asyncio.Event()
    queue = queue_of(recorder)
    async with workers(queue):
        queue.add("a")
        await until(lambda: recorder.running == 1)
        queue.add("a")
        queue.add("a", delay=0.0)
        await asyncio.sleep(0.01)
        assert recorder.calls == ["a"]
        recorder.gate.set()
        await until(lambda: len(recorder.calls) >= 2)
    assert recorder.most_at_once == 1


async def test_different_keys_run_side_by_side() -> None:
    recorder = Recorder()
    recorder.gate = asyncio.Event()
    queue = queue_of(recorder)
    async with workers(queue):
        queue.add("a")
        queue.add("b")
        await until(lambda: recorder.most_at_once == 2)
        recorder.gate.set()


async def test_a_failure_is_tried_again_until_it_succeeds() -> None:
    recorder = Recorder()
    recorder.failures_left = 3
    queue = queue_of(recorder)
    async with workers(queue):
        queue.add("a")
        await until(lambda: len(recorder.calls) == 4)
    assert recorder.failures_left == 0


async def test_one_key_that_fails_does_not_hold_up_another() -> None:
    done: list[str] = []

    async def process(key: str) -> Result:
        if key == "bad":
            raise RuntimeError("always")
        done.append(key)
        return Result()

    queue = WorkQueue(process, clock=asyncio.get_running_loop().time, debounce=0.0)
    async with workers(queue, count=1):
        queue.add("bad")
        queue.add("good")
        await until(lambda: done == ["good"])


async def test_requeue_after_comes_back_by_itself() -> None:
    recorder = Recorder()
    recorder.result = Result(requeue_after=0.002)
    queue = queue_of(recorder)
    async with workers(queue):
        queue.add("a")
        await until(lambda: len(recorder.calls) >= 3)


async def test_an_event_comes_before_a_late_requeue() -> None:
    recorder = Recorder()
    queue = queue_of(recorder)
    queue.add("a", delay=3600.0)
    queue.add("a")
    async with workers(queue):
        await until(lambda: recorder.calls == ["a"])


async def test_lost_leadership_ends_the_worker() -> None:
    async def process(key: str) -> Result:
        raise LeadershipLost("gone")

    queue = WorkQueue(process, clock=asyncio.get_running_loop().time, debounce=0.0)
    queue.add("a")
    with pytest.raises(LeadershipLost):
        await queue.work()


async def test_heartbeat_shows_how_long_a_look_takes() -> None:
    now = [100.0]
    recorder = Recorder()
    recorder.gate = asyncio.Event()
    queue = WorkQueue(recorder, clock=lambda: now[0], debounce=0.0)
    assert queue.longest_running() == 0.0
    queue.add("a")
    async with workers(queue, count=1):
        await until(lambda: recorder.running == 1)
        queue.add("b")
        now[0] = 460.0
        assert queue.longest_running() == 360.0
        assert queue.oldest_overdue() == 360.0
        recorder.gate.set()


def test_backoff_doubles_up_to_its_limit_and_spreads_by_jitter() -> None:
    backoff = Backoff(first=1.0, longest=10.0, jitter=0.2)
    middle = [backoff.delay(n, random_unit=0.5) for n in (1, 2, 3, 4, 5, 50)]
    assert middle == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert backoff.delay(1, random_unit=0.0) == pytest.approx(0.8)
    assert backoff.delay(1, random_unit=1.0) == pytest.approx(1.2)
