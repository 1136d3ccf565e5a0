"""How a model's folder gets into a pod at /model, the same way for inspection and engine."""

from dataclasses import dataclass, field
from typing import Any

from pagefleet_operator.kube.capabilities import Capabilities
from pagefleet_operator.manifests.security import container_security_context
from pagefleet_operator.model.source import (
    ClaimSource,
    FolderSource,
    HubSource,
    ImageSource,
    parse_model_uri,
)
from pagefleet_operator.planning.engine_args import MODEL_FOLDER
from pagefleet_operator.planning.images import Images
from pagefleet_operator.spec.model import ModelRef

MODEL_PATH = MODEL_FOLDER
TOKEN_KEY = "HF_TOKEN"
_VOLUME = "model"


@dataclass(frozen=True, slots=True)
class ModelVolume:
    """Parts of a pod: the volume, what fills it first, and the mount."""

    volumes: list[dict[str, Any]] = field(default_factory=list)
    init_containers: list[dict[str, Any]] = field(default_factory=list)
    mounts: list[dict[str, Any]] = field(default_factory=list)


def build_model_volume(
    model: ModelRef, revision: str, *, images: Images, capabilities: Capabilities
) -> ModelVolume:
    """`revision` is the commit that the inspection resolved, so that all pods load the same."""
    source = parse_model_uri(model.uri)
    match source:
        case ClaimSource(claim, path):
            return claim_volume(claim, path)
        case ImageSource(reference):
            if capabilities.image_volume:
                return image_volume(reference, images)
            return copied_image(reference, ["cp", "-R", "/model/.", "/dest/"], images)
        case HubSource(repo):
            return _downloaded(repo, revision, model, images)
        case FolderSource():
            raise AssertionError("the rules refuse file:// for anything but `pagefleet run`")


def claim_volume(claim: str, path: str) -> ModelVolume:
    mount: dict[str, Any] = {"name": _VOLUME, "mountPath": MODEL_PATH, "readOnly": True}
    if path:
        mount["subPath"] = path
    source = {"claimName": claim, "readOnly": True}
    return ModelVolume([{"name": _VOLUME, "persistentVolumeClaim": source}], [], [mount])


def image_volume(reference: str, images: Images) -> ModelVolume:
    source = {"reference": reference, "pullPolicy": images.pull_policy}
    mount = {"name": _VOLUME, "mountPath": MODEL_PATH, "subPath": "model", "readOnly": True}
    return ModelVolume([{"name": _VOLUME, "image": source}], [], [mount])


def copied_image(reference: str, command: list[str], images: Images) -> ModelVolume:
    """An init container of the model's image copies /model to an emptyDir at /dest."""
    copy = {
        "name": "model",
        "image": reference,
        "imagePullPolicy": images.pull_policy,
        "command": command,
        "volumeMounts": [{"name": _VOLUME, "mountPath": "/dest"}],
        "securityContext": container_security_context(),
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    return _empty_dir([copy])


def _downloaded(repo: str, revision: str, model: ModelRef, images: Images) -> ModelVolume:
    command = ["python", "-m", "pagefleet_engine.download", "--repo", repo]
    command += ["--revision", revision] if revision else []
    download = {
        "name": "model",
        "image": images.engine,
        "imagePullPolicy": images.pull_policy,
        "command": [*command, "--dest", MODEL_PATH],
        "env": hub_environment(model, images),
        "volumeMounts": [
            {"name": _VOLUME, "mountPath": MODEL_PATH},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
        "securityContext": container_security_context(),
        "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    return _empty_dir([download])


def hub_environment(model: ModelRef, images: Images) -> list[dict[str, Any]]:
    environment: list[dict[str, Any]] = [{"name": "HF_HOME", "value": "/tmp/hf"}]
    if images.hf_endpoint:
        environment.append({"name": "HF_ENDPOINT", "value": images.hf_endpoint})
    if model.secret_name:
        reference = {"name": model.secret_name, "key": TOKEN_KEY}
        environment.append({"name": TOKEN_KEY, "valueFrom": {"secretKeyRef": reference}})
    return environment


def _empty_dir(init_containers: list[dict[str, Any]]) -> ModelVolume:
    mount = {"name": _VOLUME, "mountPath": MODEL_PATH, "readOnly": True}
    return ModelVolume([{"name": _VOLUME, "emptyDir": {}}], init_containers, [mount])
