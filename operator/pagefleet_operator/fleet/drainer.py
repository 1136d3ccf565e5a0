"""Carry out drains: mark pods, ask engines, and say how many replicas a workload may lose now."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pagefleet_operator.fleet.drain import EngineLoad, choose_victims, may_stop, size_after
from pagefleet_operator.fleet.engine_client import Engines
from pagefleet_operator.fleet.replicas import DELETION_COST, DRAINING_SINCE, Replica, Workload
from pagefleet_operator.kube.api_errors import NotFound
from pagefleet_operator.kube.resources import Manifest
from pagefleet_operator.manifests.names import DRAINING_LABEL

# Below the 0 of every other pod, so that the ReplicaSet stops exactly the drained ones.
_STOP_FIRST = "-1000"


class PodPatcher(Protocol):
    async def patch(self, live: Manifest, patch: Mapping[str, Any]) -> Manifest: ...


class Drainer:
    """`now` is wall-clock seconds: the start of a drain is kept on the pod itself."""

    def __init__(self, pods: PodPatcher, engines: Engines, *, now: Callable[[], float]) -> None:
        self._pods = pods
        self._engines = engines
        self._now = now

    async def shrink(self, workload: Workload, target: int, *, timeout_seconds: float) -> int:
        """Go towards `target` replicas; returns the size that the workload should be set to."""
        replicas = workload.replicas
        load = await self._loads_if_choosing(replicas, target)
        choice = choose_victims(replicas, target=target, size=workload.size, load=load)
        for replica in choice.called_back:
            await self._call_back(replica)
        stopped = 0
        for replica in choice.victims:
            stopped += await self._drain_one(replica, timeout_seconds=timeout_seconds)
        return size_after(stopped, replicas=len(replicas), target=target, size=workload.size)

    async def _loads_if_choosing(
        self, replicas: Sequence[Replica], target: int
    ) -> Mapping[str, EngineLoad]:
        serving = [replica for replica in replicas if replica.serving]
        if not 0 < len(replicas) - target < len(replicas):
            return {}
        return await self._engines.loads(serving)

    async def _drain_one(self, replica: Replica, *, timeout_seconds: float) -> bool:
        """One step of one drain; True when the replica may stop now."""
        if replica.released:
            return True
        if not replica.draining and replica.ready:
            await self._mark(replica)
            await self._engines.drain(replica)
            return False
        load = await self._engines.drain(replica) if replica.draining else None
        if not may_stop(replica, load, timeout_seconds=timeout_seconds, now=self._now()):
            return False
        await self._annotate(replica, {"annotations": {DELETION_COST: _STOP_FIRST}})
        return True

    async def _mark(self, replica: Replica) -> None:
        await self._annotate(
            replica,
            {
                "labels": {DRAINING_LABEL: "true"},
                "annotations": {DRAINING_SINCE: f"{self._now():.0f}"},
            },
        )

    async def _call_back(self, replica: Replica) -> None:
        """Serve again. The engine first: a marked pod that serves is found again, not lost."""
        if await self._engines.cancel_drain(replica):
            await self._annotate(
                replica,
                {
                    "labels": {DRAINING_LABEL: None},
                    "annotations": {DRAINING_SINCE: None, DELETION_COST: None},
                },
            )

    async def _annotate(self, replica: Replica, metadata: Mapping[str, Any]) -> None:
        try:
            await self._pods.patch(replica.pod, {"metadata": metadata})
        except NotFound:
            return
