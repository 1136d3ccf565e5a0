"""The kinds of object that the operator touches, with their place in the API."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        parts = [self.root]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """The name of one InferenceDeployment: what the work queue holds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Self:
        return cls(body["metadata"].get("namespace", ""), body["metadata"]["name"])


INFERENCE_DEPLOYMENTS = Resource(
    "pagefleet.io", "v1alpha1", "inferencedeployments", "InferenceDeployment"
)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
DISRUPTION_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
LEADER_WORKER_SETS = Resource(
    "leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet"
)
POD_MONITORS = Resource("monitoring.coreos.com", "v1", "podmonitors", "PodMonitor")

# Children that every cluster has, and those that need an optional CRD.
CHILDREN = (
    SERVICE_ACCOUNTS,
    CONFIG_MAPS,
    SERVICES,
    DISRUPTION_BUDGETS,
    NETWORK_POLICIES,
    DEPLOYMENTS,
)
OPTIONAL_CHILDREN = (LEADER_WORKER_SETS, POD_MONITORS)

_BY_KIND = {
    (resource.api_version, resource.kind): resource
    for resource in (*CHILDREN, *OPTIONAL_CHILDREN, INFERENCE_DEPLOYMENTS, PODS, LEASES, EVENTS)
}


def resource_of(manifest: Mapping[str, Any]) -> Resource:
    return _BY_KIND[(manifest["apiVersion"], manifest["kind"])]
