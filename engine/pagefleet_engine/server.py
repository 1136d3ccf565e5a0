"""The server process: listen, load, serve, and stop without losing a request."""

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable
from contextlib import suppress

from aiohttp import web

from pagefleet_engine.api.app import build_app
from pagefleet_engine.api.service import Service
from pagefleet_engine.config import EngineConfig
from pagefleet_engine.engine_state import EngineDeadError
from pagefleet_engine.termination import write_record

FLUSH_SECONDS = 5.0  # for the last bytes of answers that are already computed
EXIT_STOPPED = 0
EXIT_FAILED = 1

log = logging.getLogger(__name__)


async def serve(config: EngineConfig) -> int:
    """Run until a signal or a failure; returns the exit code."""
    signals = _Signals()
    service = Service(config)
    runner = web.AppRunner(
        build_app(service),
        handle_signals=False,
        handler_cancellation=True,  # a client that goes away ends its request
        access_log=None,
        shutdown_timeout=FLUSH_SECONDS,
    )
    await runner.setup()
    await web.TCPSite(runner, config.host, config.port).start()
    log.info(
        "listening on %s", ", ".join(f"{address[0]}:{address[1]}" for address in runner.addresses)
    )
    try:
        return await _until_end(service, signals)
    finally:
        await runner.cleanup()


class _Signals:
    """SIGTERM and SIGINT, counted: the second one means hurry."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._receive)

    def _receive(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


async def _until_end(service: Service, signals: _Signals) -> int:
    dead = asyncio.ensure_future(service.engine.wait_dead())
    stopped = asyncio.ensure_future(_stop_on_signal(service, signals))
    try:
        await asyncio.wait((dead, stopped), return_when=asyncio.FIRST_COMPLETED)
        if stopped.done():
            stopped.result()
            return EXIT_STOPPED
        _record_failure(service.config, dead.result())
        return EXIT_FAILED
    finally:
        dead.cancel()
        stopped.cancel()


def _record_failure(config: EngineConfig, failure: EngineDeadError) -> None:
    log.error("%s: %s", failure.reason, failure)
    write_record(config.termination_log, reason=failure.reason, message=str(failure))


async def _stop_on_signal(service: Service, signals: _Signals) -> None:
    """Fail readiness, keep serving while endpoints are withdrawn, refuse, finish, give up."""
    await signals.first.wait()
    deadline = time.monotonic() + service.config.drain_timeout
    service.lifecycle.terminate()
    if not service.lifecycle.has_started:
        return
    log.info("draining %d requests", service.engine.num_live)
    await _wait(signals.second.wait(), seconds=_propagation_seconds(service.config))
    service.lifecycle.refuse()
    if not signals.second.is_set():
        await _wait_for_first(service.engine.wait_idle(), signals.second.wait(), deadline=deadline)
    if service.engine.num_live:
        log.warning("aborting %d requests", service.engine.num_live)
        service.engine.abort_all("the server is stopping and could not wait any longer")


def _propagation_seconds(config: EngineConfig) -> float:
    return min(config.propagation_seconds, config.drain_timeout)


async def _wait(condition: Awaitable[object], *, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(condition, seconds)


async def _wait_for_first(*conditions: Awaitable[object], deadline: float) -> None:
    tasks = [asyncio.ensure_future(each) for each in conditions]
    seconds = max(0.0, deadline - time.monotonic())
    await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
