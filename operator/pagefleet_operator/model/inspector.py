"""Learn a model's shape through an inspection pod: made once, read, removed, retried when it fails.

The answer lives in status.model; a pod is only made when the status has none for this model. A
failed pod stays for its logs until the next try.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pagefleet_operator.kube.api_errors import Conflict
from pagefleet_operator.kube.capabilities import Capabilities
from pagefleet_operator.kube.resources import PODS, Key, Manifest
from pagefleet_operator.kube.store import Store
from pagefleet_operator.manifests import names
from pagefleet_operator.model.inspection import (
    Inspection,
    build_inspection_pod,
    read_inspection,
    shape_from_status,
)
from pagefleet_operator.planning.images import Images
from pagefleet_operator.process.workqueue import Backoff
from pagefleet_operator.spec import InferenceDeployment

_CREATED = Inspection("Pending", "Inspecting", "the inspection pod was created")
_BACKOFF = Backoff(first=10.0, longest=600.0, jitter=0.0)


class PodWriter(Protocol):
    @property
    def store(self) -> Store: ...
    @property
    def capabilities(self) -> Capabilities: ...
    async def create(self, manifest: Manifest) -> Manifest: ...
    async def delete(self, live: Manifest) -> None: ...


@dataclass(frozen=True, slots=True)
class _Failures:
    """Of one pod name: how often it failed, which pod last, and when to try again."""

    pod_name: str
    count: int
    pod_uid: str
    retry_at: float


@dataclass(frozen=True, slots=True)
class Finding:
    """An inspection and when to look again; None when an event will tell."""

    inspection: Inspection
    requeue_after: float | None = None


class Inspector:
    """`clock` is monotonic seconds; how often a model failed is forgotten with the process."""

    def __init__(self, pods: PodWriter, images: Images, *, clock: Callable[[], float]) -> None:
        self._pods = pods
        self._images = images
        self._clock = clock
        self._failures: dict[Key, _Failures] = {}

    async def inspect(self, infd: InferenceDeployment) -> Finding:
        known = self._known(infd)
        if known is not None:
            return Finding(known)
        pod = self._pods.store.get(
            PODS, infd.namespace, names.inspection_pod_name(infd, self._images)
        )
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            return await self._create(infd) if pod is None else Finding(_CREATED, 1.0)
        inspection = read_inspection(pod)
        if inspection.state != "Failed":
            return Finding(inspection)
        return await self._retry_later(infd, pod, inspection)

    def _known(self, infd: InferenceDeployment) -> Inspection | None:
        """Of this model, or of this very spec as an earlier operator version read it.

        The second keeps an upgrade of the operator from taking a plan away or making another.
        """
        key = names.inspection_key(infd, self._images)
        if infd.generation == infd.status.get("observedGeneration"):
            key = (infd.status.get("model") or {}).get("key", key)
        return shape_from_status(infd.status, key=key)

    async def clean_up(self, infd: InferenceDeployment, *, resolved: bool) -> None:
        """Remove the pods of earlier models, and this one's once its answer is in the status."""
        wanted = None if resolved else names.inspection_pod_name(infd, self._images)
        key = Key(infd.namespace, infd.name)
        for pod in self._pods.store.children(key, PODS):
            if _is_inspection(pod) and pod["metadata"]["name"] != wanted:
                await self._pods.delete(pod)
        if resolved:
            self.forget(key)

    def forget(self, key: Key) -> None:
        self._failures.pop(key, None)

    async def _create(self, infd: InferenceDeployment) -> Finding:
        pod = build_inspection_pod(infd, self._images, self._pods.capabilities)
        try:
            await self._pods.create(pod)
        except Conflict:
            return Finding(_CREATED, 1.0)  # the watch has not shown it yet
        return Finding(_CREATED)

    async def _retry_later(
        self, infd: InferenceDeployment, pod: Manifest, inspection: Inspection
    ) -> Finding:
        failures = self._count_failure(Key(infd.namespace, infd.name), pod)
        wait = failures.retry_at - self._clock()
        if wait > 0:
            return Finding(inspection, wait)
        await self._pods.delete(pod)
        return Finding(inspection, 1.0)

    def _count_failure(self, key: Key, pod: Manifest) -> _Failures:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        last = self._failures.get(key)
        if last is not None and last.pod_uid == uid:
            return last
        count = last.count + 1 if last is not None and last.pod_name == name else 1
        delay = _BACKOFF.delay(count, random_unit=0.5)
        self._failures[key] = _Failures(name, count, uid, self._clock() + delay)
        return self._failures[key]


def _is_inspection(pod: Mapping[str, Any]) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return (
        labels.get(names.COMPONENT_LABEL) == "inspection"
        and "deletionTimestamp" not in pod["metadata"]
    )
