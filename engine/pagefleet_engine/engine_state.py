"""What the front end knows of the engine core: its last word, or how it died."""

from dataclasses import dataclass
from pathlib import Path

from pagefleet_engine.errors import EngineError
from pagefleet_engine.request import AdmissionLimits, EngineLedger, EngineStats

MEMORY_EVENTS = Path("/sys/fs/cgroup/memory.events")


@dataclass(frozen=True, slots=True)
class EngineView:
    """What the core last said about itself."""

    limits: AdmissionLimits
    ledger: EngineLedger
    stats: EngineStats
    received: float  # monotonic seconds


class EngineDeadError(EngineError):
    """The engine core is gone or hangs; `reason` goes to the termination record."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def explain_death(code: int | None, *, is_oom: bool) -> EngineDeadError:
    """The error for a core that ended without a word; `code` is negative for a signal."""
    if is_oom:
        return EngineDeadError(
            "OutOfMemory", "the kernel ended the engine core: the container's memory ran out"
        )
    how = f"was ended by signal {-code}" if code is not None and code < 0 else f"exited with {code}"
    return EngineDeadError("EngineDied", f"the engine core {how}")


def count_oom_kills(events: Path = MEMORY_EVENTS) -> int:
    """Processes that the kernel ended in this container for lack of memory, 0 where unknown."""
    try:
        lines = events.read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    counts = dict(line.split(" ", 1) for line in lines)
    return int(counts.get("oom_kill", 0))
