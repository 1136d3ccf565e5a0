"""Leader election over one Lease: which of the operator's replicas may write.

Times as client-go's: a lease lasts 15 s for the others, its holder stops writing 10 s after the
last renewal it is sure of, and it renews every 2 s. The 5 s between the two are the fence: they
cover a slow request and clocks that run at different speeds. The others look twice as often, and
at the moment the lease they watch runs out, so a dead leader is followed after 16 s. Foreign
timestamps are never compared with the local clock: a lease is dead when it has not changed for
its duration as watched from here.
"""

import asyncio
import datetime
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pagefleet_operator.kube.api_errors import Conflict, KubeError, LeadershipLost
from pagefleet_operator.kube.client import Kube
from pagefleet_operator.kube.resources import LEASES, Manifest

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    lease_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    retry_seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class _Observed:
    """The last lease version seen and when, on the local monotonic clock."""

    version: str
    at: float


class LeaderElector:
    """Holds or waits for the lease. `fence()` raises as soon as writing is no longer safe."""

    def __init__(
        self,
        kube: Kube,
        *,
        identity: str,
        namespace: str,
        name: str = "pagefleet-operator",
        times: LeaseTimes | None = None,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._kube = kube
        self._identity, self._namespace, self._name = identity, namespace, name
        self._times = times or LeaseTimes()
        self._clock, self._sleep = clock, sleep
        self._observed: _Observed | None = None
        self._renewed_at: float | None = None

    @property
    def is_leader(self) -> bool:
        if self._renewed_at is None:
            return False
        return self._clock() - self._renewed_at < self._times.renew_deadline_seconds

    def fence(self) -> None:
        if not self.is_leader:
            raise LeadershipLost(f"{self._identity} does not hold lease {self._name}")

    async def acquire(self) -> None:
        """Return once this replica holds the lease."""
        while not await self._try():
            await self._sleep(self._until_next_look())
        logger.info("%s holds lease %s", self._identity, self._name)

    async def hold(self) -> None:
        """Renew until it fails for the renew deadline, then raise LeadershipLost."""
        while True:
            await self._sleep(self._times.retry_seconds)
            await self._try()
            self.fence()

    def _until_next_look(self) -> float:
        wait = self._times.retry_seconds / 2
        if self._observed is None:
            return wait
        expires = self._observed.at + self._times.lease_seconds
        return min(wait, max(0.05, expires - self._clock()))

    async def release(self) -> None:
        """Hand the lease over at once; the next holder need not wait for it to expire."""
        if not self.is_leader:
            return
        self._renewed_at = None
        lease = await self._kube.get(LEASES, self._namespace, self._name)
        if lease and (lease.get("spec") or {}).get("holderIdentity") == self._identity:
            spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
            await self._kube.replace({**lease, "spec": spec}, fenced=False)

    async def _try(self) -> bool:
        """One round, given up when it takes longer than the renew deadline allows."""
        started = self._clock()
        try:
            async with asyncio.timeout(self._times.renew_deadline_seconds):
                held = await self._take_or_renew()
        except (KubeError, TimeoutError) as error:
            logger.warning("lease %s: %r", self._name, error)
            return False
        if held:
            self._renewed_at = started
        return held

    async def _take_or_renew(self) -> bool:
        lease = await self._kube.get(LEASES, self._namespace, self._name)
        try:
            if lease is None:
                await self._kube.create(self._lease(None), fenced=False)
                return True
            if not self._may_take(lease):
                return False
            await self._kube.replace(self._lease(lease), fenced=False)
        except Conflict:
            return False
        return True

    def _may_take(self, lease: Manifest) -> bool:
        """Ours, let go, or unchanged for its whole duration while we watched."""
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity")
        if holder == self._identity or not holder:
            return True
        self._renewed_at = None
        version = lease["metadata"]["resourceVersion"]
        if self._observed is None or self._observed.version != version:
            self._observed = _Observed(version, self._clock())
            return False
        duration = float(spec.get("leaseDurationSeconds", self._times.lease_seconds))
        return self._clock() - self._observed.at >= duration

    def _lease(self, held: Manifest | None) -> Manifest:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
        stamp = now.replace("+00:00", "Z")
        spec: dict[str, Any] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(self._times.lease_seconds),
            "renewTime": stamp,
            "acquireTime": stamp,
            "leaseTransitions": 0,
        }
        if held is None:
            return {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": {"name": self._name, "namespace": self._namespace},
                "spec": spec,
            }
        return {**held, "spec": _succeed(held.get("spec") or {}, spec)}


def _succeed(old: Manifest, new: Manifest) -> Manifest:
    """Keep when it was acquired while the holder stays; count the change when it does not."""
    if old.get("holderIdentity") == new["holderIdentity"]:
        kept = ("acquireTime", "leaseTransitions")
        return {**new, **{name: old[name] for name in kept if name in old}}
    return {**new, "leaseTransitions": int(old.get("leaseTransitions") or 0) + 1}
