"""Connections between the leading rank and the others, which also tell when one of them ends.

Every rank holds one TCP connection to rank 0. A process that dies closes it, however it dies, so
the end of a connection is the end of the engine: a collective would wait for the dead rank.
"""

import contextlib
import logging
import os
import queue
import socket
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from pagefleet_engine.errors import RankError
from pagefleet_engine.parallel.messages import Failed, Message, Stop, encode, read_message

logger = logging.getLogger(__name__)

WORD_SECONDS = 10.0  # for the word of a rank whose end was noticed in a collective first

OnLost = Callable[[RankError], None]
Kind = TypeVar("Kind")


class RankLinks:
    """The leader's connections; a thread each reads, any thread may write."""

    def __init__(self, sockets: Mapping[int, socket.socket], *, on_lost: OnLost | None) -> None:
        self._sockets = dict(sockets)
        self._on_lost = on_lost
        self._sending = threading.Lock()
        self._failing = threading.Lock()
        self._inbox: queue.SimpleQueue[tuple[int, Message] | None] = queue.SimpleQueue()
        self._failure: RankError | None = None
        self._has_failed = threading.Event()
        self._is_stopping = False
        self._threads = [
            threading.Thread(target=self._read, args=(rank,), daemon=True) for rank in self._sockets
        ]
        for thread in self._threads:
            thread.start()

    def send(self, message: Message) -> None:
        """To every rank."""
        frame = encode(message)
        try:
            with self._sending:
                for each in self._sockets.values():
                    each.sendall(frame)
        except OSError as error:
            raise self.explain(error) from error

    def collect(self, kind: type[Kind]) -> list[Kind]:
        """One message of this kind from every rank, in the order of the ranks."""
        found: dict[int, Kind] = {}
        while len(found) < len(self._sockets):
            received = self._inbox.get()
            if received is None:
                assert self._failure is not None, "a failure comes with its reason"
                raise self._failure
            rank, message = received
            assert isinstance(message, kind), f"rank {rank} sent {message}"
            found[rank] = message
        return [found[rank] for rank in sorted(found)]

    def explain(self, error: Exception) -> RankError:
        """The word of the rank that ended, where that is what caused this error."""
        if self._has_failed.wait(WORD_SECONDS) and self._failure is not None:
            return self._failure
        return RankError("RankFailed", f"rank 0 could not compute its part: {error}")

    def stop(self) -> None:
        """Let every rank end; one that is in a step ends too, since the leader does."""
        self._is_stopping = True
        with contextlib.suppress(OSError), self._sending:
            for each in self._sockets.values():
                each.sendall(encode(Stop()))

    def close(self) -> None:
        """After `stop`: end the connections, also to ranks that did not listen."""
        self._shut_down()
        for thread in self._threads:
            thread.join()
        for each in self._sockets.values():
            each.close()

    def _read(self, rank: int) -> None:
        try:
            with self._sockets[rank].makefile("rb") as stream:
                while not isinstance(message := read_message(stream), Failed):
                    self._inbox.put((rank, message))
            failure = RankError(message.reason, f"rank {rank}: {message.message}")
        except (EOFError, OSError):
            failure = RankError("RankDied", f"rank {rank} has ended without a word")
        if not self._is_stopping:
            self._lose(failure)

    def _lose(self, failure: RankError) -> None:
        with self._failing:
            if self._failure is not None:
                return
            self._failure = failure
        self._has_failed.set()
        self._shut_down()  # without the leader the other ranks end too
        self._inbox.put(None)
        if self._on_lost is not None:
            self._on_lost(failure)

    def _shut_down(self) -> None:
        for each in self._sockets.values():
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class LeaderLink:
    """A rank's connection to the leader: it ends this process when the leader stops or is gone."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, message: Message) -> None:
        self._connection.sendall(encode(message))

    def receive(self, kind: type[Kind]) -> Kind:
        message = self._inbox.get()
        assert isinstance(message, kind), f"the leader sent {message}"
        return message

    def _read(self) -> None:
        try:
            with self._connection.makefile("rb") as stream:
                while not isinstance(message := read_message(stream), Stop):
                    self._inbox.put(message)
            os._exit(0)
        except (EOFError, OSError):
            logger.error("the leading rank has ended")
            # The main thread may be inside a collective that nobody answers any more.
            os._exit(1)


def keep_alive(connection: socket.socket) -> None:
    """Notice within half a minute that the other machine is gone without a word."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
