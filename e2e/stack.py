"""From nothing to a running operator: the cluster, its images and the chart.

The image build (network and disk) runs beside the Go build (processor).
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import ExternalCluster, Images, LocalCluster, layout, use_cluster
from e2e.cluster.commands import run
from e2e.cluster.progress import Progress
from e2e.images import build_and_push
from e2e.support.kubectl import Kubectl
from e2e.support.services import service_url

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts" / "pagefleet"
OPERATOR_NAMESPACE = "pagefleet-system"
HUB_PORT = 8971


@dataclass(frozen=True, slots=True)
class Stack:
    """A cluster with the images that it can pull, and how to reach it."""

    kubectl: Kubectl
    helm: Path
    images: Images
    is_local: bool

    @property
    def host_address(self) -> str:
        """Where pods of the local cluster find servers of this machine."""
        return layout.HOST_IP

    @property
    def node_name(self) -> str:
        """The node that really runs pods."""
        nodes = self.kubectl.list("nodes", selector="!pagefleet.io/simulated-node")
        return str(nodes[0]["metadata"]["name"])

    def install(self, *settings: str) -> None:
        """Install or upgrade the chart, and wait until the operator is available."""
        values = [f"images.operator={self.images.operator}", f"images.engine={self.images.engine}"]
        args = [word for value in [*values, *settings] for word in ("--set", value)]
        self.run_helm("upgrade", "--install", "pagefleet", str(CHART), "--create-namespace", *args)
        operator = self.kubectl.inside(OPERATOR_NAMESPACE)
        operator("rollout", "status", "deployment/pagefleet-operator", "--timeout=120s")

    def run_helm(self, *args: str) -> str:
        base = [str(self.helm), "--kubeconfig", str(self.kubectl.kubeconfig)]
        return run([*base, "-n", OPERATOR_NAMESPACE, *args], timeout=300)

    def service_url(self, namespace: str, name: str) -> str:
        """Where a Service answers, seen from here."""
        return service_url(self.kubectl.inside(namespace), name, is_local=self.is_local)


def ensure_stack(progress: Progress, *, test_addons: bool) -> Stack:
    """Bring up what is missing, in seconds when nothing is."""
    cluster = use_cluster()
    if isinstance(cluster, ExternalCluster):
        kubectl = Kubectl(cluster.kubectl, cluster.kubeconfig)
        return Stack(kubectl, cluster.helm, cluster.images, is_local=False)
    return _local(cluster, progress, test_addons=test_addons)


def _local(cluster: LocalCluster, progress: Progress, *, test_addons: bool) -> Stack:
    registry = cluster.up_registry()
    with ThreadPoolExecutor(max_workers=1) as pool:
        images = pool.submit(build_and_push, registry)
        info = cluster.up(test_addons=test_addons, progress=progress)
        with progress.step("Waiting for the images", usually=120):
            ready = images.result()
    return Stack(Kubectl(info.kubectl, info.kubeconfig), info.helm, ready, is_local=True)
