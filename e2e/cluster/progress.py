"""Tell the user which step runs, how long it has run, and how long it normally takes."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

QUIET_SECONDS = 15.0


def duration(seconds: float) -> str:
    """A length of time in the form a person reads."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


@dataclass(slots=True)
class Progress:
    """Lines of progress on standard error, so that standard output stays for results."""

    started: float = field(default_factory=time.monotonic)
    last_line: float = 0.0

    def say(self, text: str) -> None:
        elapsed = time.monotonic() - self.started
        self.last_line = time.monotonic()
        print(f"[{duration(elapsed):>12}] {text}", file=sys.stderr, flush=True)

    @contextmanager
    def step(self, title: str, *, usually: float | None = None) -> Iterator[None]:
        """Announce a step, and say how long it took if that was worth a line."""
        expected = f" (usually {duration(usually)})" if usually else ""
        self.say(f"{title}{expected}")
        begun = time.monotonic()
        yield
        took = time.monotonic() - begun
        if took >= 1:
            self.say(f"  done in {duration(took)}")

    def heartbeat(self, text: str) -> None:
        """Say something, but only if the user has seen nothing for a while."""
        if time.monotonic() - self.last_line >= QUIET_SECONDS:
            self.say(f"  {text}")
