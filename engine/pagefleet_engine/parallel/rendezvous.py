"""How the ranks of a replica meet: a store at the leader's address, then a socket for each."""

import logging
import socket
import time
from collections.abc import Callable
from datetime import timedelta

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from pagefleet_engine.errors import RankError
from pagefleet_engine.parallel.links import keep_alive
from pagefleet_engine.parallel.messages import Hello, encode, read_message
from pagefleet_engine.parallel.placement import Node, Place

logger = logging.getLogger(__name__)

# Pods of a replica may start far apart: images are pulled and volumes are mounted first.
JOIN_TIMEOUT = timedelta(minutes=30)
LOCAL_JOIN_TIMEOUT = timedelta(minutes=1)  # the store is there before a rank of its pod
_POLL_SECONDS = 0.5
_LINK_PORT = "link_port"


def open_store(node: Node) -> TCPStore:
    """The leader's store; its port is free to choose where nobody outside joins."""
    return TCPStore(
        node.master_address if node.count > 1 else "127.0.0.1",
        node.master_port,
        is_master=True,
        wait_for_workers=False,
        timeout=JOIN_TIMEOUT,
    )


def join_store(node: Node) -> TCPStore:
    """Another rank's view of that store; waits until it is there."""
    timeout = JOIN_TIMEOUT if node.count > 1 else LOCAL_JOIN_TIMEOUT
    return TCPStore(node.master_address, node.master_port, is_master=False, timeout=timeout)


def accept_ranks(
    store: TCPStore, place: Place, *, check_local: Callable[[], None]
) -> dict[int, socket.socket]:
    """A connection from every other rank; `check_local` raises if one of this pod has died."""
    found: dict[int, socket.socket] = {}
    deadline = time.monotonic() + JOIN_TIMEOUT.total_seconds()
    with _listen(place.node) as listener:
        listener.settimeout(_POLL_SECONDS)
        store.set(_LINK_PORT, str(listener.getsockname()[1]))
        while len(found) < place.num_ranks - 1:
            check_local()
            if time.monotonic() > deadline:
                missing = sorted(set(range(1, place.num_ranks)) - found.keys())
                raise RankError("RankMissing", f"ranks {missing} did not join in {JOIN_TIMEOUT}")
            _accept_one(listener, found)
    return found


def _listen(node: Node) -> socket.socket:
    if node.count == 1:
        return socket.create_server(("127.0.0.1", 0))
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def _accept_one(listener: socket.socket, found: dict[int, socket.socket]) -> None:
    try:
        connection, _ = listener.accept()
    except TimeoutError:
        return
    connection.settimeout(_POLL_SECONDS)  # a stranger that says nothing must not hold us up
    try:
        # Unbuffered, since the link reads on from here.
        with connection.makefile("rb", buffering=0) as stream:
            hello = read_message(stream)
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        logger.warning("a connection that is no rank: %s", error)
        connection.close()
        return
    assert isinstance(hello, Hello)
    connection.settimeout(None)
    keep_alive(connection)
    found[hello.rank] = connection


def connect_to_leader(store: TCPStore, place: Place) -> socket.socket:
    """This rank's connection to the leader."""
    port = int(store.get(_LINK_PORT))
    connection = socket.create_connection((place.node.master_address, port))
    keep_alive(connection)
    connection.sendall(encode(Hello(place.rank)))
    return connection
