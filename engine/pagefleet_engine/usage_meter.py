"""UsageMeter: the integral over time of a level that changes in steps."""

from collections.abc import Callable


class UsageMeter:
    """Sums level x seconds exactly; the level holds from one `set_level` to the next."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._level = 0
        self._since = clock()
        self._total = 0.0

    def set_level(self, level: int) -> None:
        self._total = self.total
        self._since = self._clock()
        self._level = level

    @property
    def total(self) -> float:
        return self._total + self._level * (self._clock() - self._since)
