"""CoreClient: the front end's handle to the engine core's process."""

import contextlib
import multiprocessing
import queue
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from pagefleet_engine.config import EngineConfig
from pagefleet_engine.core_messages import CoreCommand, CoreMessage, StopCore
from pagefleet_engine.core_process import run_core

JOIN_SECONDS = 5.0

OnMessage = Callable[[CoreMessage], None]
OnExit = Callable[[int | None], None]  # the exit code, None where the process still lives


class CoreClient:
    """Spawns the core and exchanges messages with it through two threads.

    Neither direction can block the caller: a core in a long step reads nothing for seconds.
    Both callbacks run in the reader thread; `on_exit` is called once, after the last message.
    """

    def __init__(self, config: EngineConfig, *, on_message: OnMessage, on_exit: OnExit) -> None:
        self._config = config
        self._on_message = on_message
        self._on_exit = on_exit
        self._outbox: queue.SimpleQueue[CoreCommand | None] = queue.SimpleQueue()
        # spawn: a fork would copy the front end's threads' locks, and CUDA cannot be forked.
        context = multiprocessing.get_context("spawn")
        self._connection, child_end = context.Pipe()
        self._process: BaseProcess = context.Process(
            target=run_core, args=(config, child_end), name="pagefleet-engine-core"
        )
        self._process.start()
        child_end.close()
        self._reader = threading.Thread(target=self._read, args=(self._connection,), daemon=True)
        self._writer = threading.Thread(target=self._write, args=(self._connection,), daemon=True)
        self._reader.start()
        self._writer.start()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def send(self, command: CoreCommand) -> None:
        self._outbox.put(command)

    def kill(self) -> None:
        """End a core that no longer answers; `on_exit` follows."""
        self._process.kill()

    def close(self) -> None:
        """End the core, whatever it does, and wait until it is gone."""
        if self._config.num_ranks > 1:  # other processes end better by a word than by a death
            self.send(StopCore())
            self._process.join(JOIN_SECONDS)
        self._process.kill()
        self._process.join()
        self._outbox.put(None)
        self._writer.join(JOIN_SECONDS)
        self._reader.join(JOIN_SECONDS)
        self._connection.close()
        self._process.close()

    def _read(self, connection: Connection) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._on_message(connection.recv())
        self._process.join(JOIN_SECONDS)
        self._on_exit(self._process.exitcode)

    def _write(self, connection: Connection) -> None:
        while (command := self._outbox.get()) is not None:
            with contextlib.suppress(OSError):  # a dead core: its exit is reported by the reader
                connection.send(command)
