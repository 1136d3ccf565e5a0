"""What the watches have shown: the cluster's objects in memory, with the indexes reconcile needs.

Writers are the watch handlers, the periodic listing, and reconcile itself with the answer to its
own write. The newest resourceVersion wins, so the order in which those arrive does not matter.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pagefleet_operator.kube.resources import (
    INFERENCE_DEPLOYMENTS,
    NODES,
    PODS,
    Key,
    Manifest,
    Resource,
)
from pagefleet_operator.manifests.names import FIELD_MANAGER, OWNER_LABEL

MANAGED_BY = ("app.kubernetes.io/managed-by", FIELD_MANAGER)
_FINISHED = ("Succeeded", "Failed")
_Name = tuple[str, str]


class Store:
    """Objects by kind and name; children also by the InferenceDeployment they carry as label."""

    def __init__(self) -> None:
        self._objects: dict[Resource, dict[_Name, Manifest]] = {}
        self._children: dict[Key, dict[tuple[Resource, _Name], Manifest]] = {}

    def get(self, resource: Resource, namespace: str, name: str) -> Manifest | None:
        return self._objects.get(resource, {}).get((namespace, name))

    def all(self, resource: Resource) -> list[Manifest]:
        return list(self._objects.get(resource, {}).values())

    def keys(self) -> list[Key]:
        return [Key.of(body) for body in self.all(INFERENCE_DEPLOYMENTS)]

    def children(self, key: Key, resource: Resource | None = None) -> list[Manifest]:
        return [
            child
            for (kind, _), child in self._children.get(key, {}).items()
            if resource is None or kind == resource
        ]

    def put(self, resource: Resource, body: Mapping[str, Any]) -> bool:
        """Keep a newer version; False for one that is not news."""
        name = _name(body)
        kept = self.get(resource, *name)
        if kept is not None and _version(kept) >= _version(body) and _uid(kept) == _uid(body):
            return False
        slim = _slim(resource, body)
        self._objects.setdefault(resource, {})[name] = slim
        owner = owner_of(slim)
        if owner is not None and resource is not INFERENCE_DEPLOYMENTS:
            self._children.setdefault(owner, {})[(resource, name)] = slim
        return True

    def drop(self, resource: Resource, body: Mapping[str, Any]) -> None:
        """A deletion; one that names an older namesake changes nothing."""
        name = _name(body)
        kept = self.get(resource, *name)
        if kept is None or _uid(kept) != _uid(body):
            return
        del self._objects[resource][name]
        owner = owner_of(kept)
        if owner is not None:
            children = self._children.get(owner, {})
            children.pop((resource, name), None)
            if not children:
                self._children.pop(owner, None)

    def replace_all(self, resource: Resource, bodies: Iterable[Mapping[str, Any]]) -> int:
        """Take over a full listing; returns how many kept objects it proved stale."""
        listed = {_name(body): body for body in bodies}
        gone = [kept for kept in self.all(resource) if _name(kept) not in listed]
        for kept in gone:
            self.drop(resource, kept)
        news = sum(self.put(resource, body) for body in listed.values())
        return news + len(gone)


def owner_of(body: Mapping[str, Any]) -> Key | None:
    """The InferenceDeployment that an object of this operator belongs to."""
    labels = body["metadata"].get("labels") or {}
    if OWNER_LABEL not in labels or labels.get(MANAGED_BY[0]) != MANAGED_BY[1]:
        return None
    return Key(body["metadata"].get("namespace", ""), labels[OWNER_LABEL])


def is_finished(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in _FINISHED


def _slim(resource: Resource, body: Mapping[str, Any]) -> Manifest:
    """Without what is never read: managed fields, and of foreign pods all but their requests."""
    metadata = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    slim = {**kind, **body, "metadata": metadata}
    if resource is NODES and "status" in body:
        status = {name: value for name, value in body["status"].items() if name != "images"}
        slim["status"] = status
    if resource is PODS and owner_of(body) is None:
        slim = _foreign_pod(slim)
    return slim


def _foreign_pod(pod: Manifest) -> Manifest:
    spec, metadata = pod["spec"], pod["metadata"]
    containers = ("containers", "initContainers")
    return {
        "metadata": {
            name: metadata[name]
            for name in ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
            if name in metadata
        },
        "spec": {
            "nodeName": spec.get("nodeName"),
            **{name: [_requests(c) for c in spec[name]] for name in containers if name in spec},
        },
        "status": {"phase": (pod.get("status") or {}).get("phase")},
    }


def _requests(container: Mapping[str, Any]) -> Manifest:
    kept = ("name", "resources", "restartPolicy")
    return {name: container[name] for name in kept if name in container}


def _name(body: Mapping[str, Any]) -> _Name:
    return (body["metadata"].get("namespace", ""), body["metadata"]["name"])


def _uid(body: Mapping[str, Any]) -> str:
    return str(body["metadata"].get("uid", ""))


def _version(body: Mapping[str, Any]) -> int:
    """Versions of one kind are ordered numbers (guaranteed since Kubernetes 1.35)."""
    return int(body["metadata"].get("resourceVersion", 0))
