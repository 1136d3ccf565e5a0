"""The command `pagefleet-operator`."""

import os
import signal
from types import FrameType


def main() -> None:
    # A container's first process ignores SIGTERM until it has a handler, and imports take seconds.
    signal.signal(signal.SIGTERM, _leave)
    from pagefleet_operator.process.run import run_operator

    run_operator()


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(0)


if __name__ == "__main__":
    main()
