"""Why an engine ended: the record that it left, or what the kubelet saw."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pagefleet_operator.manifests.names import ENGINE_CONTAINER, PLAN_HASH_LABEL
from pagefleet_operator.planning.backoff import OUT_OF_MEMORY

_LONGEST = 1024
_IMAGE_PROBLEMS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")


def read_out_of_memory(pods: Iterable[Mapping[str, Any]], *, plan_hash: str) -> str | None:
    """What the first engine of this plan that died of it, and does not serve again, has left."""
    for pod in _of_plan(pods, plan_hash):
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            failure = _ended(container) if container["name"] == ENGINE_CONTAINER else None
            if failure is not None and failure[0] == OUT_OF_MEMORY:
                return _named(pod, failure[1])
    return None


def read_failure(pods: Iterable[Mapping[str, Any]], *, plan_hash: str) -> tuple[str, str] | None:
    """Reason and message of the first pod of this plan that cannot serve by itself."""
    for pod in _of_plan(pods, plan_hash):
        failure = _pod_failure(pod)
        if failure is not None:
            reason, message = failure
            return reason, _named(pod, message)
    return None


def _named(pod: Mapping[str, Any], message: str) -> str:
    return f"pod {pod['metadata']['name']}: {message}"[:_LONGEST]


def _of_plan(pods: Iterable[Mapping[str, Any]], plan_hash: str) -> list[Mapping[str, Any]]:
    return [
        pod
        for pod in pods
        if (pod["metadata"].get("labels") or {}).get(PLAN_HASH_LABEL) == plan_hash
    ]


def _pod_failure(pod: Mapping[str, Any]) -> tuple[str, str] | None:
    status = pod.get("status") or {}
    containers = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    for container in containers:
        failure = _waiting_problem(container) or _ended(container)
        if failure is not None:
            return failure
    return None


def _waiting_problem(container: Mapping[str, Any]) -> tuple[str, str] | None:
    waiting = (container.get("state") or {}).get("waiting") or {}
    if waiting.get("reason") in _IMAGE_PROBLEMS:
        detail = waiting.get("message") or waiting["reason"]
        return "ImagePullFailed", f"{container.get('image', '')}: {detail}"
    return None


def _ended(container: Mapping[str, Any]) -> tuple[str, str] | None:
    """Of a container that is not ready now; an engine that restarted and serves is no failure."""
    if container.get("ready"):
        return None
    for state in (container.get("state"), container.get("lastState")):
        ended = (state or {}).get("terminated") or {}
        if ended.get("exitCode"):
            return _record(container["name"], ended)
    return None


def _record(name: str, ended: Mapping[str, Any]) -> tuple[str, str]:
    text = str(ended.get("message") or "").strip()
    try:
        record = json.loads(text)
        return str(record["reason"]), str(record["message"])
    except (ValueError, KeyError, TypeError):
        pass
    is_engine = name == ENGINE_CONTAINER
    reason = "EngineFailed" if is_engine else "ModelFetchFailed"
    if ended.get("reason") == "OOMKilled":
        killed = f"container {name} was killed: it used more than its memory limit"
        return (OUT_OF_MEMORY if is_engine else reason), killed
    return reason, f"container {name} ended with {ended['exitCode']}: {text[-600:]}"
