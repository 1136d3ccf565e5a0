"""Workloads and their replicas as observed: what the rollout and the drain planner look at."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pagefleet_operator.kube.resources import DEPLOYMENTS, LEADER_WORKER_SETS, Manifest
from pagefleet_operator.kube.store import is_finished
from pagefleet_operator.manifests.names import (
    DRAINING_LABEL,
    ENGINE_CONTAINER,
    PLAN_HASH_LABEL,
    ROLE_LABEL,
)

DRAINING_SINCE = "pagefleet.io/draining-since"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One pod that serves, alone or as the leader of its group.

    `ordinal` is the group's index, None for a Deployment's pod: a LeaderWorkerSet can only give up
    its highest group. `draining_since` is wall-clock seconds. `released`: its drain has ended, and
    the workload has been or is about to be told to do without it.
    """

    pod: Manifest = field(compare=False, repr=False)
    name: str
    plan_hash: str
    address: str
    created: str
    ready: bool = False
    scheduled: bool = True
    unschedulable: bool = False
    crashed: bool = False
    draining_since: float | None = None
    released: bool = False
    ordinal: int | None = None

    @property
    def draining(self) -> bool:
        return self.draining_since is not None

    @property
    def serving(self) -> bool:
        return self.ready and not self.draining


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A Deployment or LeaderWorkerSet of one plan, with the size it is set to."""

    body: Manifest = field(compare=False, repr=False)
    plan_hash: str
    size: int
    replicas: tuple[Replica, ...]

    @property
    def serving(self) -> int:
        return sum(replica.serving for replica in self.replicas)

    @property
    def draining(self) -> int:
        return sum(replica.draining for replica in self.replicas)

    @property
    def unschedulable(self) -> int:
        return sum(replica.unschedulable for replica in self.replicas)


def read_workloads(children: Iterable[Manifest], pods: Sequence[Manifest]) -> tuple[Workload, ...]:
    """Every workload among the children with its live replicas, in a stable order."""
    replicas = [read_replica(pod) for pod in pods if is_replica(pod)]
    kinds = (DEPLOYMENTS.kind, LEADER_WORKER_SETS.kind)
    found = [
        _workload(child, replicas)
        for child in children
        if child["kind"] in kinds and "deletionTimestamp" not in child["metadata"]
    ]
    return tuple(sorted(found, key=lambda workload: workload.body["metadata"]["name"]))


def _workload(body: Manifest, replicas: Iterable[Replica]) -> Workload:
    plan_hash = str((body["metadata"].get("labels") or {}).get(PLAN_HASH_LABEL, ""))
    return Workload(
        body=body,
        plan_hash=plan_hash,
        size=int(body["spec"].get("replicas", 1)),
        replicas=tuple(replica for replica in replicas if replica.plan_hash == plan_hash),
    )


def is_replica(pod: Mapping[str, Any]) -> bool:
    """An engine pod that is not on its way out, and no worker of a group."""
    labels = pod["metadata"].get("labels") or {}
    return (
        labels.get(ROLE_LABEL) == "server"
        and "deletionTimestamp" not in pod["metadata"]
        and not is_finished(pod)
    )


def read_replica(pod: Manifest) -> Replica:
    metadata, status = pod["metadata"], pod.get("status") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    conditions = {entry["type"]: entry for entry in status.get("conditions") or []}
    index = labels.get(_GROUP_INDEX)
    return Replica(
        pod=pod,
        name=metadata["name"],
        plan_hash=str(labels.get(PLAN_HASH_LABEL, "")),
        address=str(status.get("podIP", "")),
        created=str(metadata.get("creationTimestamp", "")),
        ready=conditions.get("Ready", {}).get("status") == "True",
        scheduled=bool((pod.get("spec") or {}).get("nodeName")),
        crashed=_is_crashed(status),
        unschedulable=_is_unschedulable(conditions.get("PodScheduled", {})),
        draining_since=_since(annotations) if DRAINING_LABEL in labels else None,
        released=DELETION_COST in annotations,
        ordinal=None if index is None else int(index),
    )


def _is_unschedulable(condition: Mapping[str, Any]) -> bool:
    return condition.get("status") == "False" and condition.get("reason") == "Unschedulable"


def _is_crashed(status: Mapping[str, Any]) -> bool:
    """The engine has ended at least once and does not run now."""
    for container in status.get("containerStatuses") or ():
        if container.get("name") == ENGINE_CONTAINER:
            running = "running" in (container.get("state") or {})
            return not running and "terminated" in (container.get("lastState") or {})
    return False


def _since(annotations: Mapping[str, str]) -> float:
    try:
        return float(annotations[DRAINING_SINCE])
    except (KeyError, ValueError):
        return 0.0
