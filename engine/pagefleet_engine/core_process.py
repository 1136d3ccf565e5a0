"""The child process that owns the engine core: receive commands, step, send what came out."""

import logging
import os
import queue
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection

from pagefleet_engine.config import EngineConfig
from pagefleet_engine.core_messages import (
    AbortRequests,
    AddRequests,
    CoreCommand,
    CoreFailed,
    CoreMessage,
    CoreReady,
    Heartbeat,
    StepDone,
    StopCore,
)
from pagefleet_engine.engine_core import EngineCore
from pagefleet_engine.errors import RankError, RequestError
from pagefleet_engine.failure import name_failure
from pagefleet_engine.request import EngineOutput, EngineRequest, FinishReason

HEARTBEAT_SECONDS = 1.0

log = logging.getLogger(__name__)


def run_core(config: EngineConfig, connection: Connection) -> None:
    """Body of the child process; returns when the parent closes its end or the core fails."""
    _prepare_process()
    inbox = _Inbox(connection)
    outbox = _Outbox(connection)
    try:
        core = _load_core(config, outbox)
        inbox.on_stop = core.stop
        outbox.send(CoreReady(limits=core.limits, ledger=core.ledger(), stats=core.stats()))
        while True:
            outbox.send(_advance(core, inbox))
    except Exception as error:
        log.exception("engine core failed")
        outbox.send(CoreFailed(*name_failure(error)))


def _prepare_process() -> None:
    # The parent decides when to stop: a signal to the process group must not end requests.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s core: %(message)s")


def _load_core(config: EngineConfig, outbox: "_Outbox") -> EngineCore:
    # Imported here: the front end imports this module too and must stay free of torch.
    if config.num_ranks > 1:
        from pagefleet_engine.parallel.leader import build_parallel_core

        return build_parallel_core(config, on_lost=outbox.fail)
    from pagefleet_engine.startup import build_engine_core

    return build_engine_core(config)


class _Outbox:
    """Messages to the parent; another thread than the one that steps may report a failure."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, message: CoreMessage) -> None:
        with self._lock:
            self._connection.send(message)

    def fail(self, failure: RankError) -> None:
        """End the process, also where a step waits for a rank that is gone."""
        log.error("%s", failure)
        try:
            self.send(CoreFailed(*name_failure(failure)))
        finally:
            os._exit(1)


class _Inbox:
    """Commands read by a thread, so that the parent's writes never wait for a step."""

    def __init__(self, connection: Connection) -> None:
        self.on_stop: Callable[[], None] = lambda: None
        self._commands: queue.SimpleQueue[CoreCommand] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: Connection) -> None:
        try:
            while not isinstance(command := connection.recv(), StopCore):
                self._commands.put(command)
            self.on_stop()
        except (EOFError, OSError):
            log.warning("the front end has ended")
        # Nobody can receive the result of a running step.
        os._exit(0)

    def take(self, *, wait: bool) -> list[CoreCommand]:
        """All commands that arrived; with `wait`, up to one heartbeat for the first."""
        commands: list[CoreCommand] = []
        try:
            if wait:
                commands.append(self._commands.get(timeout=HEARTBEAT_SECONDS))
            while True:
                commands.append(self._commands.get_nowait())
        except queue.Empty:
            return commands


def _advance(core: EngineCore, inbox: _Inbox) -> CoreMessage:
    """Apply what arrived, then run one step, or report the state where there is no work."""
    refused: list[EngineOutput] = []
    for command in inbox.take(wait=not core.has_work):
        match command:
            case AddRequests(requests):
                refused += [output for item in requests for output in _add(core, item)]
            case AbortRequests(request_ids):
                core.abort(request_ids)
    if core.has_work or refused:
        outputs = core.step() if core.has_work else []
        return StepDone(outputs=(*refused, *outputs), stats=core.stats())
    return Heartbeat(stats=core.stats(), ledger=core.ledger())


def _add(core: EngineCore, request: EngineRequest) -> list[EngineOutput]:
    try:
        core.add_request(request)
    except RequestError as error:
        return [
            EngineOutput(
                request_id=request.request_id, finish_reason=FinishReason.ERROR, error=str(error)
            )
        ]
    return []
