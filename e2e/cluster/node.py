"""The one real node: containerd, kubelet and kube-proxy in a mount namespace of their own."""

from pathlib import Path

from e2e.cluster import cgroups, layout
from e2e.cluster.debian import cni_folder, find_program
from e2e.cluster.errors import MissingPrerequisite
from e2e.cluster.images import ImageStore, image_of
from e2e.cluster.kubectl import Kubectl
from e2e.cluster.layout import Layout
from e2e.cluster.network import IN_NAMESPACE
from e2e.cluster.node_config import (
    CONTAINERD_FOLDER,
    cni_conflist,
    containerd_toml,
    kube_proxy_yaml,
    kubelet_yaml,
    registry_hosts_toml,
)
from e2e.cluster.processes import Processes
from e2e.cluster.waiting import wait_until

NAMES = ("containerd", "kubelet", "kube-proxy")

# What pods leave in these folders is seen by the node alone, and goes when the node goes.
PRIVATE_FOLDERS = ("/run/netns", "/var/lib/cni", "/var/log/containers")


def start(cluster: Layout, processes: Processes, kubectl: Kubectl) -> None:
    """Start the node, and return when it is Ready."""
    write_config(cluster)
    cgroups.create()
    start_containerd(cluster, processes)
    ImageStore(cluster).ensure(image_of(cluster.bin / "pause"))
    containerd = processes.record("containerd")
    assert containerd is not None, "containerd was just started"
    # Volumes that the kubelet mounts must be seen by containerd: one mount namespace for both.
    inside = [*IN_NAMESPACE, f"--mount=/proc/{containerd.pid}/ns/mnt"]
    processes.start("kubelet", [*inside, *kubelet_command(cluster)])
    proxy = [f"{cluster.bin}/kube-proxy", f"--config={cluster.config}/kube-proxy.yaml"]
    processes.start("kube-proxy", [*IN_NAMESPACE, *proxy])
    wait_until(
        lambda: kubectl.has_condition("node", layout.NODE_NAME, "Ready"),
        what="the node to be Ready",
        timeout=90,
        check=lambda: processes.check(*NAMES),
    )


def write_config(cluster: Layout) -> None:
    """Every file that the node's programs read."""
    plugins = cni_folder()
    if plugins is None:
        raise MissingPrerequisite("install containernetworking-plugins: no CNI plugins found")
    registry_hosts = cluster.config / "certs.d"
    containerd = containerd_toml(
        pause_image=image_of(cluster.bin / "pause").name,
        image_store=cluster.image_store,
        registry_hosts=registry_hosts,
        cni_bin=plugins,
        cni_config=cluster.config / "cni",
    )
    files = {
        cluster.config / "containerd.toml": containerd,
        registry_hosts / layout.REGISTRY / "hosts.toml": registry_hosts_toml(),
        cluster.config / "cni" / "10-pagefleet.conflist": cni_conflist(),
        cluster.config / "kubelet.yaml": kubelet_yaml(
            cluster.pki, pod_logs=cluster.var / "pod-logs"
        ),
        cluster.config / "kube-proxy.yaml": kube_proxy_yaml(
            cluster.config / "kube-proxy.kubeconfig"
        ),
    }
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def start_containerd(cluster: Layout, processes: Processes) -> None:
    """In a mount namespace whose mounts reach the pods and never the host."""
    program = find_program("containerd")
    if program is None:
        raise MissingPrerequisite("install containerd: it is not on this machine")
    for folder in (cluster.containerd, cluster.image_store, Path(CONTAINERD_FOLDER)):
        folder.mkdir(parents=True, exist_ok=True)
    for private in PRIVATE_FOLDERS:
        Path(private).mkdir(parents=True, exist_ok=True)
    command = f"exec {program} --config {cluster.config}/containerd.toml"
    script = "; ".join([*private_mounts(cluster), command])
    unshare = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script]
    processes.start("containerd", [*IN_NAMESPACE, *unshare])
    wait_until(
        cluster.containerd_socket.exists,
        what="containerd's socket",
        timeout=30,
        check=lambda: processes.check("containerd"),
    )


def private_mounts(cluster: Layout) -> list[str]:
    """Shell lines that give containerd the usual paths without touching the host's."""
    covers = [f"mount -t tmpfs pagefleet {folder}" for folder in PRIVATE_FOLDERS]
    own_state = f"mount --bind {cluster.containerd} {CONTAINERD_FOLDER}"
    return ["mount --make-rshared /", *covers, own_state]


def kubelet_command(cluster: Layout) -> list[str]:
    """What the kubelet is started with."""
    return [
        f"{cluster.bin}/kubelet",
        f"--config={cluster.config}/kubelet.yaml",
        f"--kubeconfig={cluster.config}/kubelet.kubeconfig",
        f"--hostname-override={layout.NODE_NAME}",
        f"--node-ip={layout.NODE_IP}",
        f"--root-dir={cluster.var}/kubelet",
        f"--cert-dir={cluster.var}/kubelet/pki",
    ]
