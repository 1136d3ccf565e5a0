"""Whether the watches are alive: what a listing has shown must have come by watch a little later.

A stream that a load balancer has dropped, or a watcher that ended, looks like a quiet cluster.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pagefleet_operator.kube.resources import Resource


@dataclass(frozen=True, slots=True)
class _Listed:
    """The newest version of a kind in a listing, and when that listing was made."""

    version: int
    at: float


class WatchLag:
    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[Resource, int] = {}
        self._listed: dict[Resource, _Listed] = {}

    def saw(self, resource: Resource, body: Mapping[str, Any]) -> None:
        self._seen[resource] = max(self._seen.get(resource, 0), _version(body))

    def listed(self, resource: Resource, bodies: Iterable[Mapping[str, Any]]) -> None:
        """The oldest listing that is not caught up with counts, unless its news is gone again."""
        newest = max((_version(body) for body in bodies), default=0)
        if not self._is_behind(resource) or newest <= self._seen.get(resource, 0):
            self._listed[resource] = _Listed(newest, self._clock())

    def seconds_behind(self) -> float:
        behind = [kind for kind in self._listed if self._is_behind(kind)]
        return max((self._clock() - self._listed[kind].at for kind in behind), default=0.0)

    def _is_behind(self, resource: Resource) -> bool:
        listed = self._listed.get(resource)
        return listed is not None and listed.version > self._seen.get(resource, 0)


def _version(body: Mapping[str, Any]) -> int:
    return int(body["metadata"].get("resourceVersion", 0))
