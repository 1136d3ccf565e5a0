"""Where kopf ends: watch events go into the store and become keys to look at, nothing else.

Only `on.event` handlers, so kopf writes nothing of its own: no finalizer, no annotation, no
status. No peering (the lease decides who runs) and no scanning of CRDs and namespaces.
"""

import datetime
from collections.abc import Callable
from typing import Any

import kopf

from pagefleet_operator.kube.credentials import Credentials
from pagefleet_operator.kube.resources import (
    CHILDREN,
    INFERENCE_DEPLOYMENTS,
    NODES,
    PODS,
    Key,
    Manifest,
    Resource,
)
from pagefleet_operator.kube.store import MANAGED_BY, Store, is_finished, owner_of
from pagefleet_operator.process.watch_lag import WatchLag

_LOGIN_SECONDS = 600.0
_SERVER_TIMEOUT = 290  # the API server takes whole seconds only


class WatchRouter:
    """Decides which keys an event concerns. `waiting` keys lack room, so freed room wakes them."""

    def __init__(
        self, store: Store, *, look_at: Callable[[Key], None], lag: WatchLag | None = None
    ) -> None:
        self._store = store
        self._lag = lag
        self._look_at = look_at
        self.waiting: set[Key] = set()

    def event(self, resource: Resource, kind: str | None, body: Manifest) -> None:
        if self._lag is not None:
            self._lag.saw(resource, body)
        before = self._store.get(
            resource, body["metadata"].get("namespace", ""), body["metadata"]["name"]
        )
        if kind == "DELETED":
            self._store.drop(resource, body)
        elif not self._store.put(resource, body):
            return
        for key in self._concerned(resource, kind, before, body):
            self._look_at(key)

    def _concerned(
        self, resource: Resource, kind: str | None, before: Manifest | None, body: Manifest
    ) -> list[Key]:
        if resource is INFERENCE_DEPLOYMENTS:
            return [Key.of(body)]
        if resource is NODES:
            changed = kind == "DELETED" or before is None or _offer(before) != _offer(body)
            return self._store.keys() if changed else []
        owner = owner_of(body)
        keys = [] if owner is None else [owner]
        if resource is PODS and (kind == "DELETED" or is_finished(body)):
            keys += sorted(self.waiting - set(keys))
        return keys


def _offer(node: Manifest) -> tuple[Any, ...]:
    """What of a node a plan or the scheduler looks at; heartbeats are not part of it."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    ready = [c["status"] for c in status.get("conditions") or [] if c["type"] == "Ready"]
    return (
        node["metadata"].get("labels"),
        spec.get("taints"),
        spec.get("unschedulable", False),
        status.get("allocatable"),
        ready,
    )


def build_registry(router: WatchRouter, credentials: Credentials) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await connection(credentials)

    kopf.on.login(registry=registry)(login)
    for resource in (INFERENCE_DEPLOYMENTS, NODES, PODS, *CHILDREN):
        _watch(registry, router, resource)
    return registry


def _watch(registry: kopf.OperatorRegistry, router: WatchRouter, resource: Resource) -> None:
    async def on_event(event: Any, **_: Any) -> None:
        router.event(resource, event["type"], dict(event["object"]))

    kopf.on.event(
        resource.group,
        resource.version,
        resource.plural,
        id=f"watch-{resource.plural}",
        registry=registry,
    )(on_event)


def build_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.watching.server_timeout = _SERVER_TIMEOUT
    settings.watching.client_timeout = _SERVER_TIMEOUT + 10
    settings.watching.connect_timeout = 10.0
    settings.watching.chunk_size = 500
    settings.networking.request_timeout = 30.0
    settings.queueing.idle_timeout = 1.0
    selector = f"{MANAGED_BY[0]}={MANAGED_BY[1]}"
    for resource in CHILDREN:
        settings.watching.label_selectors[resource.group, resource.version, resource.plural] = (
            selector
        )
    return settings


async def connection(credentials: Credentials) -> kopf.ConnectionInfo:
    """Expires before a projected token does, so that kopf logs in again with the new one."""
    now = datetime.datetime.now(datetime.UTC)
    scheme, _, token = (await credentials.authorization() or "").partition(" ")
    certificate, key = credentials.certificate_files or (None, None)
    return kopf.ConnectionInfo(
        server=credentials.server,
        ca_path=credentials.ca_file,
        insecure=credentials.insecure or None,
        scheme=scheme or None,
        token=token or None,
        certificate_path=certificate,
        private_key_path=key,
        proxy_url=credentials.proxy,
        expiration=now + datetime.timedelta(seconds=_LOGIN_SECONDS),
    )
