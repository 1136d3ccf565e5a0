"""The inventory, rebuilt at most a few times a second however many keys are reconciled."""

from collections.abc import Callable

from pagefleet_operator.inventory import Inventory, build_inventory
from pagefleet_operator.resources import NODES, PODS
from pagefleet_operator.store import Store

_MAX_AGE_SECONDS = 0.25


class InventoryCache:
    """Free room may be a quarter of a second old; a pod that then finds none waits and says so."""

    def __init__(self, store: Store, *, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._built: Inventory | None = None
        self._built_at = 0.0

    def get(self) -> Inventory:
        now = self._clock()
        if self._built is None or now - self._built_at > _MAX_AGE_SECONDS:
            self._built = build_inventory(self._store.all(NODES), self._store.all(PODS))
            self._built_at = now
        return self._built
