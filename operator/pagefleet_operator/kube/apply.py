"""Bring an InferenceDeployment's children to what its manifests say, writing only differences.

A child carries the hash of the manifest it was last applied from. It is unchanged when that hash
is the manifest's and every field of the manifest still has its value, quantities compared as
numbers. A removed field shows in the hash, a foreign edit in the values.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pagefleet_operator.kube.resources import Manifest
from pagefleet_operator.spec.quantity import parse_quantity

APPLIED_HASH = "pagefleet.io/applied-hash"


class Writer(Protocol):
    async def apply(self, manifest: Manifest, *, subresource: str = "") -> Manifest: ...
    async def delete(self, live: Manifest) -> None: ...


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """Names as `kind/name`, in kubectl's words."""

    created: tuple[str, ...] = ()
    configured: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    pruned: tuple[str, ...] = ()

    @property
    def wrote(self) -> bool:
        return bool(self.created or self.configured or self.pruned)


@dataclass(frozen=True, slots=True)
class Difference:
    """What has to be written: manifests to apply, live objects to delete."""

    create: tuple[Manifest, ...]
    configure: tuple[Manifest, ...]
    unchanged: tuple[Manifest, ...]
    prune: tuple[Manifest, ...]


def difference(
    manifests: Sequence[Manifest], live: Iterable[Manifest], *, owner_uid: str
) -> Difference:
    """Compare; only children controlled by this owner are ever pruned."""
    found = {_identity(child): child for child in live}
    create, configure, unchanged = [], [], []
    for manifest in manifests:
        child = found.pop(_identity(manifest), None)
        stamped = stamp(manifest)
        if child is None:
            create.append(stamped)
        elif is_current(stamped, child):
            unchanged.append(stamped)
        else:
            configure.append(stamped)
    prune = [child for child in found.values() if _is_controlled_by(child, owner_uid)]
    return Difference(tuple(create), tuple(configure), tuple(unchanged), tuple(prune))


async def apply(writer: Writer, change: Difference) -> ApplyResult:
    for manifest in (*change.create, *change.configure):
        await writer.apply(manifest)
    for child in change.prune:
        if "deletionTimestamp" not in child["metadata"]:
            await writer.delete(child)
    return ApplyResult(
        created=_names(change.create),
        configured=_names(change.configure),
        unchanged=_names(change.unchanged),
        pruned=_names(change.prune),
    )


def stamp(manifest: Manifest) -> Manifest:
    """The manifest with its own hash as an annotation."""
    metadata = manifest["metadata"]
    annotations = {**(metadata.get("annotations") or {}), APPLIED_HASH: _hash(manifest)}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def is_current(stamped: Manifest, child: Manifest) -> bool:
    hashes = [
        (body["metadata"].get("annotations") or {}).get(APPLIED_HASH) for body in (stamped, child)
    ]
    return hashes[0] == hashes[1] and covers(child, stamped)


def covers(live: object, wanted: object, *, quantity: bool = False) -> bool:
    """Whether every field of `wanted` has its value in `live`; the server may have added more."""
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and all(
            covers(live.get(name), value, quantity=quantity or name in _QUANTITY_FIELDS)
            for name, value in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return (
            isinstance(live, list | tuple)
            and len(live) == len(wanted)
            and all(covers(a, b, quantity=quantity) for a, b in zip(live, wanted, strict=True))
        )
    if live == wanted:
        return True
    if live is None:
        return wanted in (False, "", 0)
    return quantity and _same_quantity(live, wanted)


_QUANTITY_FIELDS = frozenset({"limits", "requests", "sizeLimit", "capacity", "storage"})


def _same_quantity(a: object, b: object) -> bool:
    try:
        return parse_quantity(str(a)) == parse_quantity(str(b))
    except ValueError:
        return False


def keep_pods_as_they_are(manifest: Manifest, live: Manifest | None) -> Manifest:
    """A workload that exists keeps its pod template: a new plan is a new workload.

    So a new version of the operator that would build the same plan's pods otherwise restarts none.
    """
    if live is None:
        return manifest
    kept = {name: live["spec"][name] for name in _POD_FIELDS if name in live["spec"]}
    return {**manifest, "spec": {**manifest["spec"], **kept}}


_POD_FIELDS = ("template", "leaderWorkerTemplate", "selector")


def _hash(manifest: Manifest) -> str:
    """Pod templates are left out: they are written once, and come back with defaults filled in."""
    spec = manifest.get("spec") or {}
    if any(name in spec for name in ("template", "leaderWorkerTemplate")):
        spec = {name: value for name, value in spec.items() if name not in _POD_FIELDS}
        manifest = {**manifest, "spec": spec}
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _identity(body: Mapping[str, Any]) -> tuple[str, str]:
    return (body["kind"], body["metadata"]["name"])


def _is_controlled_by(child: Manifest, uid: str) -> bool:
    references = child["metadata"].get("ownerReferences") or []
    return any(ref.get("controller") and ref.get("uid") == uid for ref in references)


def _names(manifests: Iterable[Manifest]) -> tuple[str, ...]:
    return tuple(f"{body['kind']}/{body['metadata']['name']}" for body in manifests)
