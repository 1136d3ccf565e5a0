"""What keeps a fleet safe: disruption budget, network policy, an account without rights."""

from pagefleet_operator.kube.resources import Manifest
from pagefleet_operator.manifests import names
from pagefleet_operator.spec import InferenceDeployment


def build_service_account(infd: InferenceDeployment) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": names.metadata(infd, infd.name, names.common_labels(infd)),
        "automountServiceAccountToken": False,
    }


def build_disruption_budget(infd: InferenceDeployment) -> Manifest:
    """A node drain takes one pod at a time."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": names.metadata(infd, infd.name, names.common_labels(infd)),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": names.selector_labels(infd)},
        },
    }


def build_network_policy(infd: InferenceDeployment) -> Manifest:
    """The API from anywhere in the cluster; everything else only between pods of this fleet."""
    own_pods = {"matchLabels": names.selector_labels(infd)}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": names.metadata(infd, infd.name, names.common_labels(infd)),
        "spec": {
            "podSelector": own_pods,
            "policyTypes": ["Ingress"],
            "ingress": [
                {
                    "from": [{"namespaceSelector": {}}],
                    "ports": [{"protocol": "TCP", "port": names.ENGINE_PORT}],
                },
                {"from": [{"podSelector": own_pods}]},
            ],
        },
    }
