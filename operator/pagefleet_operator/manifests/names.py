"""Names, labels and owner references of everything that belongs to an InferenceDeployment."""

from typing import Any

from pagefleet_operator.planning.engine_args import LISTEN_PORT
from pagefleet_operator.planning.hashing import short_hash
from pagefleet_operator.planning.images import Images
from pagefleet_operator.spec import API_VERSION, KIND, InferenceDeployment

FIELD_MANAGER = "pagefleet-operator"
OWNER_LABEL = "pagefleet.io/inference-deployment"
PLAN_HASH_LABEL = "pagefleet.io/plan-hash"
COMPONENT_LABEL = "pagefleet.io/component"
DRAINING_LABEL = "pagefleet.io/draining"
ROLE_LABEL = "pagefleet.io/role"  # "server" on pods that answer requests, "worker" on the others
ENGINE_CONTAINER = "engine"
ENGINE_PORT = LISTEN_PORT
PORT_NAME = "http"


def workload_name(infd: InferenceDeployment, plan_hash: str) -> str:
    """Of the Deployment or LeaderWorkerSet: plans can stand side by side."""
    return f"{infd.name}-{plan_hash}"


def service_name(infd: InferenceDeployment) -> str:
    return infd.name


def pods_service_name(infd: InferenceDeployment) -> str:
    """Of the headless Service that gives each pod an address."""
    return f"{infd.name}-pods"


def config_map_name(infd: InferenceDeployment) -> str:
    return f"{infd.name}-plan"


def inspection_pod_name(infd: InferenceDeployment, images: Images) -> str:
    return f"{infd.name}-inspect-{inspection_key(infd, images)}"


def inspection_key(infd: InferenceDeployment, images: Images) -> str:
    """Identity of an inspection: a new uri, revision or inspecting program asks again."""
    model = infd.spec.model
    return short_hash([model.uri, model.revision, images.operator])


def selector_labels(infd: InferenceDeployment) -> dict[str, str]:
    """What every engine pod of the object carries and no other pod does."""
    return {
        "app.kubernetes.io/name": "pagefleet-engine",
        "app.kubernetes.io/instance": infd.name,
        COMPONENT_LABEL: "engine",
        OWNER_LABEL: infd.name,
    }


def common_labels(infd: InferenceDeployment) -> dict[str, str]:
    return {
        **selector_labels(infd),
        "app.kubernetes.io/component": "engine",
        "app.kubernetes.io/part-of": "pagefleet",
        "app.kubernetes.io/managed-by": FIELD_MANAGER,
    }


def engine_labels(
    infd: InferenceDeployment, plan_hash: str, *, role: str = "server"
) -> dict[str, str]:
    return {**common_labels(infd), PLAN_HASH_LABEL: plan_hash, ROLE_LABEL: role}


def server_selector(infd: InferenceDeployment) -> dict[str, str]:
    """Pods that answer requests: every pod, or the leader of a group of pods."""
    return {**selector_labels(infd), ROLE_LABEL: "server"}


def inspection_labels(infd: InferenceDeployment) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "pagefleet-inspection",
        "app.kubernetes.io/instance": infd.name,
        "app.kubernetes.io/component": "inspection",
        "app.kubernetes.io/part-of": "pagefleet",
        "app.kubernetes.io/managed-by": FIELD_MANAGER,
        COMPONENT_LABEL: "inspection",
        OWNER_LABEL: infd.name,
    }


def selector_text(infd: InferenceDeployment) -> str:
    """For status.selector, which /scale hands to autoscalers."""
    return ",".join(f"{key}={value}" for key, value in sorted(server_selector(infd).items()))


def metadata(infd: InferenceDeployment, name: str, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": infd.namespace,
        "labels": labels,
        "ownerReferences": [owner_reference(infd)],
    }


def owner_reference(infd: InferenceDeployment) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": infd.name,
        "uid": infd.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
