"""Kubernetes events for what changed: one per transition of a condition, never one per look."""

import datetime
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pagefleet_operator.kube.api_errors import KubeError
from pagefleet_operator.kube.resources import EVENTS, Manifest

logger = logging.getLogger(__name__)
_REPEAT_AFTER_SECONDS = 600.0
_LONGEST_NOTE = 1000


@dataclass(frozen=True, slots=True)
class Happening:
    reason: str
    note: str
    warning: bool = False


class Creator(Protocol):
    async def create(self, manifest: Manifest) -> Manifest: ...


def transitions(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> list[Happening]:
    """What conditions say now that they did not say before, by status and reason."""
    known = {entry["type"]: (entry["status"], entry["reason"]) for entry in before}
    causes = {entry["reason"] for entry in after if entry["type"] != "Ready"}
    return [
        Happening(entry["reason"], f"{entry['type']}: {entry['message']}", _is_bad(entry))
        for entry in after
        if known.get(entry["type"]) != (entry["status"], entry["reason"])
        and not _is_beginning(entry, known)
        and not (entry["type"] == "Ready" and entry["reason"] in causes)
        and entry["reason"] not in _ON_THE_WAY.get(entry["type"], ())
    ]


def memory_steps(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> list[Happening]:
    """A step that the plan (status.plan) took down because engines ran out of memory."""
    if not after or _steps(after) <= _steps(before):
        return []
    return [Happening("MemoryLowered", after["notes"][0], warning=True)]


def _steps(plan: Mapping[str, Any] | None) -> int:
    record = (plan or {}).get("backoff") or {}
    return int(record.get("steps", 0))


def _is_beginning(entry: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """What is not known, not ready or not moving at the start is no news."""
    if entry["type"] in known or entry["status"] == "True":
        return False
    return entry["status"] == "Unknown" or entry["type"] in _FALSE_AT_FIRST


def _is_bad(condition: Mapping[str, Any]) -> bool:
    return condition["status"] == "False" and condition["type"] not in _FALSE_IS_FINE


# Progressing tells these already.
_ON_THE_WAY = {
    "WorkloadReady": ("NoPlan", "NoReplicas", "ReplicasStarting", "RollingOut"),
}
_FALSE_AT_FIRST = ("Ready", "WorkloadReady", "Progressing", "ScalingActive", "ScalingLimited")
_FALSE_IS_FINE = ("Progressing", "ScalingLimited")


class EventRecorder:
    """Writes happenings about one object; the same one again only after ten minutes.

    An event that cannot be written is logged: it must never fail a reconcile.
    """

    def __init__(self, kube: Creator, *, instance: str, clock: Callable[[], float]) -> None:
        self._kube = kube
        self._instance = instance
        self._clock = clock
        self._seen: dict[tuple[str, str, str], float] = {}

    async def record(self, regarding: Manifest, happenings: Iterable[Happening]) -> None:
        for happening in happenings:
            if self._is_repeat(regarding["metadata"]["uid"], happening):
                continue
            try:
                await self._kube.create(_event(regarding, happening, self._instance))
            except KubeError as error:
                logger.warning("event %s not written: %r", happening.reason, error)

    def _is_repeat(self, uid: str, happening: Happening) -> bool:
        now = self._clock()
        self._seen = {key: at for key, at in self._seen.items() if now - at < _REPEAT_AFTER_SECONDS}
        key = (uid, happening.reason, happening.note)
        if key in self._seen:
            return True
        self._seen[key] = now
        return False


def _event(regarding: Manifest, happening: Happening, instance: str) -> Manifest:
    metadata = regarding["metadata"]
    stamp = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {
            "name": f"{metadata['name']}.{uuid.uuid4().hex[:16]}",
            "namespace": metadata["namespace"],
        },
        "eventTime": stamp.replace("+00:00", "Z"),
        "reportingController": "pagefleet.io/operator",
        "reportingInstance": instance[:128],
        "action": "Reconcile",
        "type": "Warning" if happening.warning else "Normal",
        "reason": happening.reason,
        "note": happening.note[:_LONGEST_NOTE],
        "regarding": {
            "apiVersion": regarding["apiVersion"],
            "kind": regarding["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
    }
