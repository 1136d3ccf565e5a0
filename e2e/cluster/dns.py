"""CoreDNS as a Deployment behind the address that every pod has in its resolv.conf."""

from pathlib import Path

from e2e.cluster.images import ImageStore, image_of
from e2e.cluster.kubectl import Kubectl
from e2e.cluster.layout import Layout
from e2e.cluster.processes import Processes
from e2e.cluster.waiting import wait_until

MANIFEST = Path(__file__).parent / "manifests" / "coredns.yaml"


def start(cluster: Layout, processes: Processes, kubectl: Kubectl) -> None:
    """Import the image, apply the manifest, and return when CoreDNS answers."""
    # Root inside the pod, because the port is below 1024; every other capability is dropped.
    image = image_of(cluster.bin / "coredns", user="0")
    ImageStore(cluster).ensure(image)
    kubectl.apply(MANIFEST.read_text().replace("{coredns_image}", image.name))
    wait_until(
        lambda: is_available(kubectl),
        what="CoreDNS to be Available",
        timeout=90,
        check=lambda: processes.check(*processes.names()),
    )


def is_available(kubectl: Kubectl) -> bool:
    """Whether the cluster's names can be resolved."""
    return kubectl.has_condition("deployment", "coredns", "Available", namespace="kube-system")
