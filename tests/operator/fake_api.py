"""A small API server in memory: enough of the real one to test the client and the loop.

Covers paths, resourceVersion and uid, label selectors, paged lists, watches with bookmarks,
server-side apply (fields a manager drops are removed), merge-patch, update conflicts, the status
subresource, preconditions of a delete, and faults to order. Leaves out: schemas, defaults,
admission, field ownership between managers, garbage collection.
"""

import asyncio
import copy
import itertools
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration

from pagefleet_operator.kube.credentials import Credentials
from pagefleet_operator.kube.resources import (
    AUTOSCALERS,
    CHILDREN,
    EVENTS,
    INFERENCE_DEPLOYMENTS,
    LEASES,
    NODES,
    PODS,
    Manifest,
    Resource,
)

_NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
KINDS = (*CHILDREN, INFERENCE_DEPLOYMENTS, NODES, PODS, LEASES, EVENTS, AUTOSCALERS, _NAMESPACES)


@dataclass(frozen=True, slots=True)
class Fault:
    """Answer `status` to the next request of this method whose path contains `path`."""

    method: str
    path: str
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Write:
    method: str
    path: str
    body: Any


@dataclass(frozen=True, slots=True)
class _Place:
    """What a path names."""

    resource: Resource
    namespace: str
    name: str
    subresource: str


class FakeApi:
    def __init__(self) -> None:
        self.objects: dict[Resource, dict[tuple[str, str], Manifest]] = {k: {} for k in KINDS}
        self.faults: list[Fault] = []
        self.writes: list[Write] = []
        self.tokens: list[str | None] = []
        self.expire_lists_once = False
        self.lose_events = False
        self.page_size: int | None = None
        self._applied: dict[tuple[Resource, str, str, str], Any] = {}
        self._versions = itertools.count(1)
        self._watches: list[tuple[Resource, str, asyncio.Queue[Any]]] = []
        self._history: list[tuple[int, Resource, Any]] = []

    # What tests do to the cluster.

    def put(self, resource: Resource, body: Manifest) -> Manifest:
        """Create or replace an object as some other client would."""
        key = (body["metadata"].get("namespace", ""), body["metadata"]["name"])
        known = self.objects[resource].get(key)
        stored = copy.deepcopy(body)
        stored.setdefault("apiVersion", resource.api_version)
        stored.setdefault("kind", resource.kind)
        return self._store(resource, stored, known)

    def remove(self, resource: Resource, namespace: str, name: str) -> None:
        gone = self.objects[resource].pop((namespace, name))
        gone["metadata"]["resourceVersion"] = str(next(self._versions))
        self._announce(resource, "DELETED", gone)

    def get(self, resource: Resource, namespace: str, name: str) -> Manifest | None:
        return self.objects[resource].get((namespace, name))

    def names(self, resource: Resource) -> list[str]:
        return sorted(name for _, name in self.objects[resource])

    @property
    def watched(self) -> set[Resource]:
        """Kinds that somebody watches now."""
        return {resource for resource, _, _ in self._watches}

    def writes_to(self, *, but: Resource = LEASES) -> list[Write]:
        return [write for write in self.writes if f"/{but.plural}" not in write.path]

    # The server.

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Credentials]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        async with TestServer(app) as server:
            yield credentials_for(str(server.make_url("")).rstrip("/"))

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.tokens.append(request.headers.get("Authorization"))
        fault = self._take_fault(request)
        if fault is not None:
            return _status(fault.status, "ordered by the test", headers=fault.headers)
        place = _place(request.path)
        if place is None:
            return _discovery(request.path, self.objects)
        if request.method == "GET":
            return await self._read(request, place)
        body = json.loads(await request.text() or "null")
        self.writes.append(Write(request.method, request.path, body))
        return self._write(request, place, body)

    def _take_fault(self, request: web.Request) -> Fault | None:
        for fault in self.faults:
            if fault.method == request.method and fault.path in request.path:
                self.faults.remove(fault)
                return fault
        return None

    async def _read(self, request: web.Request, place: _Place) -> web.StreamResponse:
        if place.name:
            found = self.get(place.resource, place.namespace, place.name)
            return _status(404, f"{place.name} not found") if found is None else _json(found)
        if request.query.get("watch") == "true":
            return await self._watch(request, place)
        return self._list(request, place)

    def _list(self, request: web.Request, place: _Place) -> web.Response:
        items = self._selected(place, request.query.get("labelSelector", ""))
        start = int(request.query.get("continue", "0"))
        if start and self.expire_lists_once:
            self.expire_lists_once = False
            return _status(410, "the provided continue parameter is too old")
        size = self.page_size or int(request.query.get("limit", "0")) or len(items) or 1
        metadata = {"resourceVersion": str(next(self._versions))}
        if start + size < len(items):
            metadata["continue"] = str(start + size)
        bare = [
            {name: value for name, value in item.items() if name not in ("apiVersion", "kind")}
            for item in items[start : start + size]
        ]
        return _json({"kind": f"{place.resource.kind}List", "metadata": metadata, "items": bare})

    async def _watch(self, request: web.Request, place: _Place) -> web.StreamResponse:
        if not request.query.get("timeoutSeconds", "1").isdigit():
            return _status(400, "timeoutSeconds: invalid syntax")
        response = web.StreamResponse()
        await response.prepare(request)
        changes: asyncio.Queue[Any] = asyncio.Queue()
        watch = (place.resource, request.query.get("labelSelector", ""), changes)
        self._watches.append(watch)
        since = int(request.query.get("resourceVersion") or "0")
        for version, resource, event in self._history:
            if version > since and resource == watch[0] and _matches(event["object"], watch[1]):
                changes.put_nowait(event)
        try:
            while True:
                event = await changes.get()
                await response.write(json.dumps(event).encode() + b"\n")
        except (ConnectionError, asyncio.CancelledError):
            return response
        finally:
            self._watches.remove(watch)

    def _selected(self, place: _Place, labels: str) -> list[Manifest]:
        found = self.objects[place.resource].items()
        return [
            body
            for (namespace, _), body in sorted(found)
            if place.namespace in ("", namespace) and _matches(body, labels)
        ]

    def _write(self, request: web.Request, place: _Place, body: Any) -> web.Response:
        known = self.get(place.resource, place.namespace, place.name) if place.name else None
        match request.method:
            case "POST":
                return self._create(place, body)
            case "PUT":
                return self._update(place, known, body)
            case "DELETE":
                return self._delete(place, known, body)
        if "apply-patch" in request.content_type:
            return self._apply(request, place, known, body)
        if known is None:
            return _status(404, f"{place.name} not found")
        return _json(self._store(place.resource, _merge(known, body), known))

    def _create(self, place: _Place, body: Any) -> web.Response:
        name = body["metadata"]["name"]
        if self.get(place.resource, place.namespace, name) is not None:
            return _status(409, f"{name} already exists")
        body["metadata"].setdefault("namespace", place.namespace)
        return _json(self._store(place.resource, body, None), status=201)

    def _update(self, place: _Place, known: Manifest | None, body: Any) -> web.Response:
        if known is None:
            return _status(404, f"{place.name} not found")
        if body["metadata"]["resourceVersion"] != known["metadata"]["resourceVersion"]:
            return _status(409, "the object has been modified")
        return _json(self._store(place.resource, body, known))

    def _delete(self, place: _Place, known: Manifest | None, body: Any) -> web.Response:
        if known is None:
            return _status(404, f"{place.name} not found")
        wanted = ((body or {}).get("preconditions") or {}).get("uid")
        if wanted not in (None, known["metadata"]["uid"]):
            return _status(409, "the uid does not match")
        self.remove(place.resource, place.namespace, place.name)
        return _status(200, "deleted")

    def _apply(
        self, request: web.Request, place: _Place, known: Manifest | None, body: Any
    ) -> web.Response:
        if request.query.get("fieldManager") is None:
            return _status(400, "fieldManager is required for apply patch")
        if known is None and place.subresource:
            return _status(404, f"{place.name} not found")
        slot = (place.resource, place.namespace, place.name, place.subresource)
        base = _without(known or {}, self._applied.get(slot, {}), body)
        self._applied[slot] = copy.deepcopy(body)
        status = 200 if known else 201
        return _json(self._store(place.resource, _merge(base, body), known), status=status)

    def _store(self, resource: Resource, body: Manifest, known: Manifest | None) -> Manifest:
        metadata = body["metadata"]
        if known is not None and _content(body) == _content(known):
            return known
        version = next(self._versions)
        metadata["uid"] = known["metadata"]["uid"] if known else metadata.get("uid", f"u{version}")
        if known is None or known.get("spec") != body.get("spec"):
            metadata["generation"] = (known or body)["metadata"].get("generation", 0) + 1
        metadata["resourceVersion"] = str(version)
        metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        self.objects[resource][(metadata.get("namespace", ""), metadata["name"])] = body
        self._announce(resource, "MODIFIED" if known else "ADDED", body)
        return body

    def _announce(self, resource: Resource, kind: str, body: Manifest) -> None:
        if self.lose_events:
            return
        event = {"type": kind, "object": copy.deepcopy(body)}
        self._history.append((int(body["metadata"]["resourceVersion"]), resource, event))
        for watched, labels, changes in self._watches:
            if watched == resource and _matches(body, labels):
                changes.put_nowait(event)


def credentials_for(server: str) -> Credentials:
    return Credentials(Configuration(host=server, api_key={"BearerToken": "Bearer secret"}))


def _place(path: str) -> _Place | None:
    for resource in KINDS:
        rest = path.removeprefix(resource.root + "/")
        if rest == path:
            continue
        parts = rest.split("/")
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        if parts[0] == resource.plural:
            name, subresource = (*parts[1:], "", "")[:2]
            return _Place(resource, namespace, name, subresource)
    return None


def _discovery(path: str, kinds: Iterable[Resource]) -> web.Response:
    served = [kind for kind in kinds if kind.root == path.rstrip("/")]
    if served:
        names = [_api_resource(kind) for kind in served]
        return _json({"kind": "APIResourceList", "resources": names})
    if path.rstrip("/") == "/api":
        return _json({"versions": ["v1"]})
    if path.rstrip("/") == "/apis":
        return _json({"groups": [_group(kind) for kind in kinds if kind.group]})
    return _status(404, f"no {path}")


def _api_resource(kind: Resource) -> Manifest:
    return {
        "name": kind.plural,
        "singularName": kind.kind.lower(),
        "kind": kind.kind,
        "namespaced": kind.namespaced,
        "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
    }


def _group(kind: Resource) -> Manifest:
    version = {"groupVersion": kind.api_version, "version": kind.version}
    return {"name": kind.group, "versions": [version], "preferredVersion": version}


def _matches(body: Manifest, selector: str) -> bool:
    labels = body["metadata"].get("labels") or {}
    wanted = [term.split("=", 1) for term in selector.split(",") if term]
    return all(labels.get(name) == value for name, value in wanted)


def _content(body: Manifest) -> str:
    ignored = ("resourceVersion", "generation", "uid", "creationTimestamp", "managedFields")
    metadata = {name: v for name, v in body["metadata"].items() if name not in ignored}
    return json.dumps({**body, "metadata": metadata}, sort_keys=True)


def _merge(base: Any, patch: Any) -> Any:
    """JSON merge-patch: None removes, mappings go deep, everything else replaces."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = copy.deepcopy(base) if isinstance(base, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(merged.get(name), value)
    return merged


def _without(base: Any, earlier: Any, now: Any) -> Any:
    """`base` less the fields that the manager applied earlier and does not apply now."""
    if not isinstance(base, dict) or not isinstance(earlier, dict):
        return base
    now = now if isinstance(now, dict) else {}
    return {
        name: _without(value, earlier.get(name, {}), now.get(name))
        for name, value in base.items()
        if name not in earlier or name in now
    }


def _json(body: Any, *, status: int = 200) -> web.Response:
    return web.json_response(body, status=status)


def _status(code: int, message: str, *, headers: Mapping[str, str] | None = None) -> web.Response:
    body = {"kind": "Status", "code": code, "message": message}
    return web.json_response(body, status=code, headers=headers)
