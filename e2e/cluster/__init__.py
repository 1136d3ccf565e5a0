"""A real Kubernetes cluster on one machine, for the demo and the end-to-end scenarios."""

from e2e.cluster.access import ClusterInfo, ExternalCluster, Images, stated_cluster
from e2e.cluster.errors import ClusterError
from e2e.cluster.local_cluster import LocalCluster

__all__ = [
    "ClusterError",
    "ClusterInfo",
    "ExternalCluster",
    "Images",
    "LocalCluster",
    "use_cluster",
]


def use_cluster() -> LocalCluster | ExternalCluster:
    """The cluster that KUBECONFIG states, else the one on this machine."""
    return stated_cluster() or LocalCluster()
