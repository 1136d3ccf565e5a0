"""AsyncEngine: the engine core's process seen from asyncio; submit, stream, abort, health."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass

from pagefleet_engine.config import EngineConfig
from pagefleet_engine.core_client import CoreClient
from pagefleet_engine.core_messages import (
    AbortRequests,
    AddRequests,
    CoreFailed,
    CoreMessage,
    CoreReady,
    Heartbeat,
    StepDone,
)
from pagefleet_engine.engine_state import (
    EngineDeadError,
    EngineView,
    count_oom_kills,
    explain_death,
)
from pagefleet_engine.request import (
    EngineLedger,
    EngineOutput,
    EngineRequest,
    EngineStats,
    FinishReason,
)
from pagefleet_engine.request_metrics import RequestMetrics

STALL_SECONDS = 120.0  # a slow step is not a dead one: far above the longest step


@dataclass(slots=True)
class _Live:
    """One request inside the core, and the stream that its outputs go to."""

    arrival_time: float
    outputs: asyncio.Queue[EngineOutput]
    is_counted: bool
    last_token_time: float | None = None


class AsyncEngine:
    """Owns the core's process and every request in it; all methods belong to one event loop.

    Every submitted request is finished exactly once in the metrics, whoever ends it.
    """

    def __init__(
        self,
        metrics: RequestMetrics,
        *,
        clock: Callable[[], float] = time.monotonic,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._stall_seconds = stall_seconds
        self._live: dict[str, _Live] = {}
        self._client: CoreClient | None = None
        self._view: EngineView | None = None
        self._failure: EngineDeadError | None = None
        self._is_closing = False
        self._oom_kills = count_oom_kills()
        self._progress_time = clock()  # the last time a step ended or work came to an idle core
        self._loaded = asyncio.Event()  # the core is ready, or failed
        self._dead = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    # Lifetime

    def start(self, config: EngineConfig) -> None:
        """Spawn the core; it loads the model meanwhile."""
        loop = asyncio.get_running_loop()

        def post(callback: Callable[..., None], *args: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody listens
                loop.call_soon_threadsafe(callback, *args)

        self._client = CoreClient(
            config,
            on_message=lambda message: post(self._receive, message),
            on_exit=lambda code: post(self._core_exited, code),
        )

    async def wait_loaded(self) -> EngineView:
        """Wait until requests can be submitted; raise EngineDeadError if that never happens."""
        await self._loaded.wait()
        return self.view

    async def wait_dead(self) -> EngineDeadError:
        await self._dead.wait()
        assert self._failure is not None, "a dead engine has a reason"
        return self._failure

    async def wait_idle(self) -> None:
        await self._idle.wait()

    async def close(self) -> None:
        self._is_closing = True
        self.fail(EngineDeadError("Stopped", "the server has stopped"))
        if self._client is not None:
            await asyncio.to_thread(self._client.close)

    # State

    @property
    def view(self) -> EngineView:
        if self._failure is not None:
            raise self._failure
        assert self._view is not None, "wait_loaded comes first"
        return self._view

    @property
    def latest_view(self) -> EngineView | None:
        """The core's last word, None while the model loads; also of a dead core."""
        return self._view

    @property
    def core_pid(self) -> int | None:
        return self._client.pid if self._client is not None else None

    @property
    def num_live(self) -> int:
        return len(self._live)

    @property
    def is_dead(self) -> bool:
        return self._failure is not None

    @property
    def is_stalled(self) -> bool:
        """Whether there is work and no step has ended for too long."""
        return bool(self._live) and self._clock() - self._progress_time > self._stall_seconds

    async def watch(self, period: float = 1.0) -> None:
        """Give up on a core that hangs."""
        while not self.is_dead:
            await asyncio.sleep(period)
            if self.is_stalled and self._client is not None:
                self.fail(EngineDeadError("EngineStalled", self._stall_message()))
                self._client.kill()

    def _stall_message(self) -> str:
        return f"no step ended for {self._stall_seconds:g} s with {self.num_live} requests live"

    # Requests

    def submit(
        self, requests: Sequence[EngineRequest], *, is_counted: bool = True
    ) -> "OutputStream":
        """Send requests to the core; their outputs come from one stream.

        `is_counted` False keeps them out of the metrics (the warm-up).
        """
        limits = self.view.limits
        for request in requests:
            limits.check(request.prompt_token_ids, request.sampling)
        assert self._client is not None, "start comes first"
        outputs: asyncio.Queue[EngineOutput] = asyncio.Queue()
        if not self._live:
            self._progress_time = self._clock()
        for request in requests:
            self._live[request.request_id] = _Live(request.arrival_time, outputs, is_counted)
        self._idle.clear()
        self._client.send(AddRequests(tuple(requests)))
        return OutputStream(self, outputs, [request.request_id for request in requests])

    def end(self, request_ids: Iterable[str], reason: FinishReason) -> None:
        """Take requests out of the core and count them; those that have ended are left alone."""
        live = [each for each in request_ids if each in self._live]
        for request_id in live:
            self._finish(request_id, reason)
        if live and self._client is not None and not self.is_dead:
            self._client.send(AbortRequests(tuple(live)))

    def abort_all(self, message: str) -> None:
        """End every request with an error that its client sees."""
        live = dict(self._live)
        self.end(live, FinishReason.ABORT)
        for request_id, each in live.items():
            each.outputs.put_nowait(_failed(request_id, FinishReason.ABORT, message))

    # From the core

    def _receive(self, message: CoreMessage) -> None:
        if self.is_dead:
            return
        now = self._clock()
        match message:
            case CoreReady(limits, ledger, stats):
                self._view = EngineView(limits, ledger, stats, now)
                self._loaded.set()
            case StepDone(outputs, stats):
                self._update_view(stats, None, now)
                for output in outputs:
                    self._route(output, now)
            case Heartbeat(stats, ledger):
                self._update_view(stats, ledger, now)
            case CoreFailed(reason, text):
                self.fail(EngineDeadError(reason, text))

    def _update_view(self, stats: EngineStats, ledger: EngineLedger | None, now: float) -> None:
        view = self.view
        if stats.num_steps > view.stats.num_steps:
            self._progress_time = now
        self._view = EngineView(view.limits, ledger or view.ledger, stats, now)

    def _route(self, output: EngineOutput, now: float) -> None:
        live = self._live.get(output.request_id)
        if live is None:  # ended here while the step ran
            return
        if output.new_token_ids and live.is_counted:
            self._note_tokens(live, output, now)
        if output.finish_reason is not None:
            self._finish(output.request_id, output.finish_reason)
        live.outputs.put_nowait(output)

    def _note_tokens(self, live: _Live, output: EngineOutput, now: float) -> None:
        if live.last_token_time is None:
            self._metrics.time_to_first_token.observe(now - live.arrival_time)
            self._metrics.queue_time.observe(output.queue_seconds)
        else:
            self._metrics.inter_token_latency.observe(now - live.last_token_time)
        live.last_token_time = now

    def _finish(self, request_id: str, reason: FinishReason) -> None:
        live = self._live.pop(request_id)
        if live.is_counted:
            self._metrics.finish(reason, seconds=self._clock() - live.arrival_time)
        if not self._live:
            self._idle.set()

    def _core_exited(self, code: int | None) -> None:
        if not self._is_closing:
            self.fail(explain_death(code, is_oom=count_oom_kills() > self._oom_kills))

    def fail(self, failure: EngineDeadError) -> None:
        """Remember the first failure and end every request with it."""
        if self._failure is not None:
            return
        self._failure = failure
        for request_id, live in list(self._live.items()):
            self._finish(request_id, FinishReason.ERROR)
            live.outputs.put_nowait(_failed(request_id, FinishReason.ERROR, str(failure)))
        self._loaded.set()
        self._dead.set()


class OutputStream:
    """Outputs of the requests of one submission, as they come; close it in any case."""

    def __init__(
        self, engine: AsyncEngine, outputs: asyncio.Queue[EngineOutput], request_ids: list[str]
    ) -> None:
        self._engine = engine
        self._outputs = outputs
        self._open = set(request_ids)

    async def __aiter__(self) -> AsyncIterator[EngineOutput]:
        while self._open:
            output = await self._outputs.get()
            if output.request_id not in self._open:  # stopped here in the meantime
                continue
            if output.finish_reason is not None:
                self._open.discard(output.request_id)
            yield output

    def stop(self, request_id: str) -> None:
        """End one request that has said enough (a stop string)."""
        self._open.discard(request_id)
        self._engine.end([request_id], FinishReason.STOP)

    def close(self) -> None:
        """Abort whatever still runs; after the last output it does nothing."""
        self._engine.end(self._open, FinishReason.ABORT)
        self._open.clear()


def _failed(request_id: str, reason: FinishReason, message: str) -> EngineOutput:
    return EngineOutput(request_id=request_id, finish_reason=reason, error=message)
