"""The Service that clients call, and the headless one that gives each pod an address."""

from pagefleet_operator.kube.resources import Manifest
from pagefleet_operator.manifests import names
from pagefleet_operator.spec import InferenceDeployment

SERVICE_PORT = 80


def build_service(infd: InferenceDeployment) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": names.metadata(infd, names.service_name(infd), names.common_labels(infd)),
        "spec": {
            "type": "ClusterIP",
            "selector": names.server_selector(infd),
            "ports": [
                {"name": names.PORT_NAME, "port": SERVICE_PORT, "targetPort": names.PORT_NAME}
            ],
        },
    }


def build_pods_service(infd: InferenceDeployment) -> Manifest:
    """Pods that are not ready are in it too, so that a router can see them drain."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": names.metadata(infd, names.pods_service_name(infd), names.common_labels(infd)),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": names.server_selector(infd),
            "ports": [
                {
                    "name": names.PORT_NAME,
                    "port": names.ENGINE_PORT,
                    "targetPort": names.PORT_NAME,
                }
            ],
        },
    }


def service_url(infd: InferenceDeployment) -> str:
    return f"http://{names.service_name(infd)}.{infd.namespace}.svc"
