"""Budget: how long a stage may run so that the whole check ends in time."""

from collections.abc import Callable
from dataclasses import dataclass

TOTAL_SECONDS = 8 * 60.0
WRITING_SECONDS = 5.0  # kept back for the results
LEAST_STAGE_SECONDS = 15.0  # a process has to import torch and compile


@dataclass(frozen=True, slots=True)
class Budget:
    """Counts from its start on the given clock, in seconds."""

    started: float
    clock: Callable[[], float]
    total_seconds: float = TOTAL_SECONDS

    def left(self) -> float:
        return self.started + self.total_seconds - WRITING_SECONDS - self.clock()

    def limit(self, *, later: float) -> float | None:
        """Seconds that a stage may run if `later` ones are kept for those behind it; None if it
        should not be begun. What earlier stages did not need is any later one's."""
        granted = self.left() - later
        return granted if granted >= LEAST_STAGE_SECONDS else None
