"""Wait until something is true, and notice when the program that should make it true has died."""

import time
from collections.abc import Callable

from e2e.cluster.errors import NotReadyInTime

POLL_SECONDS = 0.2


def nothing_to_watch() -> None:
    """Used where no program of ours is responsible for the condition."""


def wait_until(
    is_true: Callable[[], bool],
    *,
    what: str,
    timeout: float,
    check: Callable[[], None] = nothing_to_watch,
) -> None:
    """Poll until is_true(); check() may raise at any time, for example ComponentCrashed."""
    deadline = time.monotonic() + timeout
    while not is_true():
        check()
        if time.monotonic() > deadline:
            raise NotReadyInTime(f"waited {timeout:.0f} s for {what}")
        time.sleep(POLL_SECONDS)
