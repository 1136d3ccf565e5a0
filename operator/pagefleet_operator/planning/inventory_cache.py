"""The inventory, rebuilt at most a few times a second however many keys are reconciled."""

from collections.abc import Callable

from pagefleet_operator.kube.resources import NODES, PODS
from pagefleet_operator.kube.store import Store
from pagefleet_operator.planning.inventory import Inventory, build_inventory

_LEAST_AGE_SECONDS = 0.25
# Building takes at most this share of the time, however large the cluster.
_MOST_SHARE = 0.1


class InventoryCache:
    """Free room may be a moment old; a pod that then finds none waits and says so."""

    def __init__(self, store: Store, *, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._built: Inventory | None = None
        self._built_at = 0.0
        self._most_age = 0.0

    def get(self) -> Inventory:
        now = self._clock()
        if self._built is None or now - self._built_at > self._most_age:
            self._built = build_inventory(self._store.all(NODES), self._store.all(PODS))
            self._built_at = self._clock()
            self._most_age = max(_LEAST_AGE_SECONDS, (self._built_at - now) / _MOST_SHARE)
        return self._built
