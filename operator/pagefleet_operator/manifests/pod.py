"""The pod template of an engine: one container that gets exactly the plan's arguments."""

from typing import Any

from pagefleet_operator.kube.capabilities import Capabilities
from pagefleet_operator.manifests import names
from pagefleet_operator.manifests.model_volume import ModelVolume, build_model_volume
from pagefleet_operator.manifests.placement import (
    build_placement,
    container_resources,
    thread_count,
)
from pagefleet_operator.manifests.probes import GRACE_MARGIN_SECONDS, build_probes
from pagefleet_operator.manifests.security import (
    container_security_context,
    pod_security_context,
)
from pagefleet_operator.planning.images import Images
from pagefleet_operator.planning.serving_plan import ServingPlan
from pagefleet_operator.spec import InferenceDeployment

RENDEZVOUS_PORT = 29500


def build_pod_template(
    infd: InferenceDeployment,
    plan: ServingPlan,
    *,
    images: Images,
    capabilities: Capabilities,
    role: str = "server",
) -> dict[str, Any]:
    """`role` worker: a pod that computes a part of a replica and answers no requests."""
    volume = build_model_volume(
        infd.spec.model, plan.revision, images=images, capabilities=capabilities
    )
    spec: dict[str, Any] = {
        "serviceAccountName": infd.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": infd.spec.drain_seconds + GRACE_MARGIN_SECONDS,
        "securityContext": pod_security_context(),
        "containers": [_engine(plan, volume, images, role=role)],
        "volumes": _volumes(plan, volume),
        **images.pod_fields,
        **build_placement(infd, plan),
    }
    if volume.init_containers:
        spec["initContainers"] = volume.init_containers
    labels = names.engine_labels(infd, plan.plan_hash, role=role)
    return {"metadata": {"labels": labels}, "spec": spec}


def _engine(plan: ServingPlan, volume: ModelVolume, images: Images, *, role: str) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": names.ENGINE_CONTAINER,
        "image": plan.engine_image,
        "imagePullPolicy": images.pull_policy,
        "command": ["python", "-m", "pagefleet_engine"],
        "args": list(plan.engine_args),
        "env": _environment(plan),
        "ports": [{"name": names.PORT_NAME, "containerPort": names.ENGINE_PORT}],
        "resources": container_resources(plan),
        "volumeMounts": [
            *volume.mounts,
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
        "securityContext": container_security_context(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if role == "server":
        container.update(build_probes(plan.memory.startup_seconds))
    return container


def _environment(plan: ServingPlan) -> list[dict[str, str]]:
    values = {"HOME": "/tmp", "HF_HOME": "/tmp/hf", "HF_HUB_OFFLINE": "1"}
    if not plan.on_gpu:
        values["OMP_NUM_THREADS"] = str(thread_count(plan))
    if plan.pods_per_replica > 1:
        # LeaderWorkerSet sets the LWS_ variables before these.
        values["MASTER_ADDR"] = "$(LWS_LEADER_ADDRESS)"
        values["MASTER_PORT"] = str(RENDEZVOUS_PORT)
        values["NODE_RANK"] = "$(LWS_WORKER_INDEX)"
        values["NUM_NODES"] = "$(LWS_GROUP_SIZE)"
    return [{"name": name, "value": value} for name, value in values.items()]


def _volumes(plan: ServingPlan, volume: ModelVolume) -> list[dict[str, Any]]:
    shm = {"medium": "Memory", "sizeLimit": str(plan.memory.shm_bytes)}
    return [
        *volume.volumes,
        {"name": "tmp", "emptyDir": {}},
        {"name": "shm", "emptyDir": shm},
    ]
