"""From nothing to a running operator: the cluster, its images and the chart.

The image build (network and disk) runs beside the Go build (processor).
"""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import ClusterInfo, ExternalCluster, LocalCluster, use_cluster
from e2e.cluster.commands import run
from e2e.cluster.progress import Progress
from e2e.images import ImageSet, build, push
from e2e.support.kubectl import Kubectl

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts" / "pagefleet"
OPERATOR_NAMESPACE = "pagefleet-system"
HUB_PORT = 8971


@dataclass(frozen=True, slots=True)
class Stack:
    """A cluster with the operator installed, and how to reach it."""

    kubectl: Kubectl
    helm: Path
    images: ImageSet
    is_local: bool

    def install(self, *settings: str) -> None:
        """Install or upgrade the chart, and wait until the operator is available."""
        args = ["--set", f"images.operator={self.images.operator}"]
        args += ["--set", f"images.engine={self.images.engine}"]
        for setting in settings:
            args += ["--set", setting]
        self.run_helm("upgrade", "--install", "pagefleet", str(CHART), "--create-namespace", *args)
        operator = self.kubectl.inside(OPERATOR_NAMESPACE)
        operator("rollout", "status", "deployment/pagefleet-operator", "--timeout=120s")

    def run_helm(self, *args: str) -> str:
        base = [str(self.helm), "--kubeconfig", str(self.kubectl.kubeconfig)]
        return run([*base, "-n", OPERATOR_NAMESPACE, *args], timeout=300)


def ensure_stack(progress: Progress, *, test_addons: bool) -> Stack:
    """Bring up what is missing, in seconds when nothing is."""
    cluster = use_cluster()
    if isinstance(cluster, ExternalCluster):
        return _external(cluster)
    return _local(cluster, progress, test_addons=test_addons)


def _external(cluster: ExternalCluster) -> Stack:
    info = cluster.info()
    images = ImageSet.from_environment()
    return Stack(Kubectl(info.kubectl, info.kubeconfig), info.helm, images, is_local=False)


def _local(cluster: LocalCluster, progress: Progress, *, test_addons: bool) -> Stack:
    with ThreadPoolExecutor(max_workers=1) as pool:
        building: Future[ImageSet] = pool.submit(build, progress)
        info: ClusterInfo = cluster.up(test_addons=test_addons, progress=progress)
        with progress.step("images", usually=240):
            images = building.result()
    with progress.step("hand the images to the cluster", usually=120):
        pushed = push(images, registry=info.registry, progress=progress)
    return Stack(Kubectl(info.kubectl, info.kubeconfig), info.helm, pushed, is_local=True)
