"""The cluster as the reconcilers see it: reads come from the store, writes go to the API server.

Every answer to a write lands in the store at once, so the next look does not depend on how fast
the watch is.
"""

import logging
from collections.abc import Mapping
from typing import Any

from pagefleet_operator.kube.api_errors import Forbidden, NotFound
from pagefleet_operator.kube.capabilities import Capabilities
from pagefleet_operator.kube.client import Kube
from pagefleet_operator.kube.image_volumes import supports_image_volumes
from pagefleet_operator.kube.resources import (
    AUTOSCALERS,
    CHILDREN,
    INFERENCE_DEPLOYMENTS,
    LEADER_WORKER_SETS,
    NODES,
    OPTIONAL_CHILDREN,
    POD_MONITORS,
    PODS,
    Key,
    Manifest,
    Resource,
    resource_of,
)
from pagefleet_operator.kube.store import MANAGED_BY, Store
from pagefleet_operator.process.watch_lag import WatchLag

logger = logging.getLogger(__name__)


class Cluster:
    """One API server and what is known of it."""

    def __init__(self, kube: Kube, *, namespace: str = "", lag: WatchLag | None = None) -> None:
        self.kube = kube
        self._lag = lag
        self.store = Store()
        self.capabilities = Capabilities()
        self.autoscalers: list[Manifest] = []
        self._namespace = namespace

    async def probe(self) -> None:
        """What the cluster can do now, and who else scales; nodes must be known before."""
        self.capabilities = Capabilities(
            image_volume=supports_image_volumes(self.store.all(NODES)),
            lws=await self.kube.serves(LEADER_WORKER_SETS),
            pod_monitor=await self.kube.serves(POD_MONITORS),
        )

        self.autoscalers = await self._list_autoscalers()

    async def _list_autoscalers(self) -> list[Manifest]:
        """Only to warn, so an operator that may not read them goes on without."""
        try:
            return await self.kube.list_all(AUTOSCALERS, namespace=self._namespace)
        except (Forbidden, NotFound) as error:
            logger.warning("other autoscalers are not looked at: %r", error)
            return []

    def optional_kinds(self) -> list[Resource]:
        served = (self.capabilities.lws, self.capabilities.pod_monitor)
        return [
            kind for kind, is_served in zip(OPTIONAL_CHILDREN, served, strict=True) if is_served
        ]

    async def sync(self) -> int:
        """List everything; returns how many objects the watches had missed or left behind."""
        missed = 0
        for resource in (NODES, PODS, INFERENCE_DEPLOYMENTS):
            missed += await self._list(resource, "")
        selector = "=".join(MANAGED_BY)
        for resource in (*CHILDREN, *self.optional_kinds()):
            missed += await self._list(resource, selector)
        return missed

    async def _list(self, resource: Resource, labels: str) -> int:
        namespace = self._namespace if resource.namespaced else ""
        found = await self.kube.list_all(resource, namespace=namespace, labels=labels)
        if self._lag is not None and resource not in OPTIONAL_CHILDREN:
            self._lag.listed(resource, found)
        return self.store.replace_all(resource, found)

    def find(self, key: Key) -> Manifest | None:
        return self.store.get(INFERENCE_DEPLOYMENTS, key.namespace, key.name)

    async def refresh(self, resource: Resource, namespace: str, name: str) -> None:
        """Read one object of a kind that is not watched."""
        kept = self.store.get(resource, namespace, name)
        live = await self.kube.get(resource, namespace, name)
        if live is not None:
            self.store.put(resource, live)
        elif kept is not None:
            self.store.drop(resource, kept)

    async def apply(self, manifest: Manifest, *, subresource: str = "") -> Manifest:
        return self._remember(await self.kube.apply(manifest, subresource=subresource))

    async def create(self, manifest: Manifest) -> Manifest:
        return self._remember(await self.kube.create(manifest))

    async def patch(self, live: Manifest, patch: Mapping[str, Any]) -> Manifest:
        return self._remember(await self.kube.patch(live, patch))

    async def delete(self, live: Manifest) -> None:
        await self.kube.delete(live)

    def _remember(self, answer: Manifest) -> Manifest:
        self.store.put(resource_of(answer), answer)
        return answer
