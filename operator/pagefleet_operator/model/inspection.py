"""The inspection pod: built here, and its answer read here."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pagefleet_memory import MemoryModelError, ModelShape
from pagefleet_operator.kube.capabilities import Capabilities
from pagefleet_operator.kube.resources import Manifest
from pagefleet_operator.manifests import names
from pagefleet_operator.manifests.model_volume import (
    MODEL_PATH,
    ModelVolume,
    claim_volume,
    copied_image,
    hub_environment,
    image_volume,
)
from pagefleet_operator.manifests.security import (
    container_security_context,
    pod_security_context,
)
from pagefleet_operator.model.source import ClaimSource, ImageSource, parse_model_uri
from pagefleet_operator.planning.images import Images
from pagefleet_operator.spec import InferenceDeployment

CONTAINER = "inspect"
DEADLINE_SECONDS = 900

# Of each weight file only its beginning is copied out of a model image: the header says the rest.
HEADER_BYTES = 64 << 20
_COPY_HEADERS = f"""set -eu
cd /model
for file in *; do
  case "$file" in
    *.safetensors|*.gguf) head -c {HEADER_BYTES} "$file" > "/dest/$file" ;;
    *.json) cp "$file" /dest/ ;;
  esac
done"""

State = Literal["Pending", "Succeeded", "Failed"]

# Why a pod waits, as the kubelet says it -> reason of the condition.
_WAITING_REASONS = {
    "ErrImagePull": "ImagePullFailed",
    "ImagePullBackOff": "ImagePullFailed",
    "InvalidImageName": "ImagePullFailed",
    "ErrImageNeverPull": "ImagePullFailed",
    "CreateContainerConfigError": "PodConfigInvalid",
    "CreateContainerError": "PodConfigInvalid",
}


@dataclass(frozen=True, slots=True)
class Inspection:
    """What is known of the model; `shape` is there when state is Succeeded."""

    state: State
    reason: str
    message: str
    shape: ModelShape | None = None
    revision: str = ""


def build_inspection_pod(
    infd: InferenceDeployment, images: Images, capabilities: Capabilities | None = None
) -> Manifest:
    """A pod of the operator's image with the model mounted as the engine will get it."""
    volume = _volume(infd, images, capabilities or Capabilities())
    model = infd.spec.model
    arguments = ["--path", MODEL_PATH] if volume.mounts else ["--uri", model.uri]
    arguments += ["--headers-only"] if volume.init_containers else []
    arguments += ["--revision", model.revision] if model.revision else []
    container = {
        "name": CONTAINER,
        "image": images.operator,
        "imagePullPolicy": images.pull_policy,
        "command": ["python", "-m", "pagefleet_operator.inspect", *arguments],
        "env": hub_environment(model, images),
        "volumeMounts": [*volume.mounts, {"name": "tmp", "mountPath": "/tmp"}],
        "securityContext": container_security_context(),
        "resources": {
            "requests": {"cpu": "50m", "memory": "128Mi"},
            "limits": {"memory": "512Mi"},
        },
    }
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": DEADLINE_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security_context(),
        "containers": [container],
        "volumes": [*volume.volumes, {"name": "tmp", "emptyDir": {}}],
        **images.pod_fields,
    }
    if volume.init_containers:
        spec["initContainers"] = volume.init_containers
    name = names.inspection_pod_name(infd, images)
    metadata = names.metadata(infd, name, names.inspection_labels(infd))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _volume(infd: InferenceDeployment, images: Images, capabilities: Capabilities) -> ModelVolume:
    source = parse_model_uri(infd.spec.model.uri)
    match source:
        case ClaimSource(claim, path):
            return claim_volume(claim, path)
        case ImageSource(reference) if capabilities.image_volume:
            return image_volume(reference, images)
        case ImageSource(reference):
            return copied_image(reference, ["sh", "-c", _COPY_HEADERS], images)
        case _:
            return ModelVolume()


def read_inspection(pod: Mapping[str, Any]) -> Inspection:
    status = pod.get("status", {})
    message = _termination_message(status)
    if message is not None:
        return _read_answer(message)
    if status.get("phase") == "Failed":
        return _failed_without_answer(status)
    return _why_pending(status)


def shape_from_status(status: Mapping[str, Any], *, key: str) -> Inspection | None:
    """The inspection that an earlier reconcile kept in status.model, if it is of this model."""
    model = status.get("model") or {}
    if model.get("key") != key or not model.get("shape"):
        return None
    try:
        shape = ModelShape.from_summary(model["shape"])
    except MemoryModelError:
        return None  # written by another version: inspect again
    return _succeeded(shape, model.get("revision") or "")


def _termination_message(status: Mapping[str, Any]) -> str | None:
    for container in status.get("containerStatuses") or ():
        if container.get("name") == CONTAINER:
            terminated = (container.get("state") or {}).get("terminated") or {}
            message = terminated.get("message")
            return str(message) if message else None
    return None


def _read_answer(message: str) -> Inspection:
    try:
        answer = json.loads(message)
        if "error" in answer:
            error = answer["error"]
            return Inspection("Failed", str(error["reason"]), str(error["message"]))
        shape = ModelShape.from_summary(answer["shape"])
    except (ValueError, KeyError, TypeError) as error:
        text = f"the inspection pod's answer cannot be read ({error}): {message[:200]}"
        return Inspection("Failed", "InspectionUnreadable", text)
    return _succeeded(shape, str(answer.get("revision") or ""))


def _succeeded(shape: ModelShape, revision: str) -> Inspection:
    message = f"{shape.architecture}, {shape.num_parameters / 1e9:.2f} billion parameters"
    return Inspection("Succeeded", "Inspected", message, shape, revision)


def _failed_without_answer(status: Mapping[str, Any]) -> Inspection:
    for container in _all_containers(status):
        terminated = (container.get("state") or {}).get("terminated") or {}
        if terminated.get("exitCode"):
            text = (terminated.get("message") or terminated.get("reason") or "").strip()
            message = f"container {container['name']} ended with {terminated['exitCode']}: {text}"
            reason = "ModelCopyFailed" if container["name"] == "model" else "InspectionFailed"
            return Inspection("Failed", reason, message[:1024])
    message = status.get("message") or "the inspection pod failed without saying why"
    return Inspection("Failed", status.get("reason") or "InspectionFailed", str(message))


def _why_pending(status: Mapping[str, Any]) -> Inspection:
    for container in _all_containers(status):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _WAITING_REASONS:
            reason = _WAITING_REASONS[waiting["reason"]]
            text = waiting.get("message") or waiting["reason"]
            image = container.get("image", "")
            return Inspection("Pending", reason, f"{image}: {text}"[:1024])
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            text = condition.get("message") or "the inspection pod cannot be scheduled"
            return Inspection("Pending", "InspectionUnschedulable", str(text)[:1024])
    return Inspection("Pending", "Inspecting", "the inspection pod has not answered yet")


def _all_containers(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
