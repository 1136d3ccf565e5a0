"""What only the tests need: simulated GPU nodes (KWOK) and the LeaderWorkerSet controller."""

from pathlib import Path

from e2e.cluster import layout
from e2e.cluster.commands import run
from e2e.cluster.errors import CommandFailed
from e2e.cluster.images import ImageStore, image_of
from e2e.cluster.kubectl import Kubectl
from e2e.cluster.layout import Layout
from e2e.cluster.network import IN_NAMESPACE
from e2e.cluster.processes import Processes
from e2e.cluster.waiting import wait_until

KWOK = "kwok"
FAKE_NODE = "kwok.x-k8s.io/node=fake"
STAGES = ("node/fast", "node/heartbeat-with-lease", "pod/fast")
LWS_NAMESPACE = "lws-system"
LWS_CONTROLLER = "lws-controller-manager"


def start(cluster: Layout, processes: Processes, kubectl: Kubectl) -> None:
    """Start both, unless they run already."""
    if not processes.is_running(KWOK):
        processes.start(KWOK, [*IN_NAMESPACE, *kwok_command(cluster)])
    if not lws_is_available(kubectl):
        _install_lws(cluster)
    wait_until(
        lambda: lws_is_available(kubectl),
        what="the LeaderWorkerSet controller to be Available",
        timeout=120,
        check=lambda: processes.check(KWOK),
    )
    processes.check(KWOK)


def are_up(processes: Processes, kubectl: Kubectl) -> bool:
    """Whether both work."""
    return processes.is_running(KWOK) and lws_is_available(kubectl)


def lws_is_available(kubectl: Kubectl) -> bool:
    return kubectl.has_condition("deployment", LWS_CONTROLLER, "Available", namespace=LWS_NAMESPACE)


def kwok_command(cluster: Layout) -> list[str]:
    """KWOK plays the kubelet of every node that carries its annotation, and of no other."""
    stages = asset(cluster, "kwok", "stages")
    files = [
        path
        for stage in STAGES
        for path in sorted((stages / stage).glob("*.yaml"))
        if path.name != "kustomization.yaml"
    ]
    return [
        f"{cluster.bin}/kwok",
        f"--kubeconfig={cluster.kubeconfig}",
        "--manage-all-nodes=false",
        f"--manage-nodes-with-annotation-selector={FAKE_NODE}",
        f"--node-ip={layout.NODE_IP}",
        *[f"--config={path}" for path in files],
    ]


def asset(cluster: Layout, program: str, name: str) -> Path:
    """A folder that was built together with a program."""
    return (cluster.bin / program).resolve().parent / name


def _install_lws(cluster: Layout) -> None:
    """Its own chart, with an image made from the program that was built here."""
    image = image_of(cluster.bin / "manager")
    ImageStore(cluster).ensure(image)
    repository, _, tag = image.name.rpartition(":")
    values = {
        "image.manager.repository": repository,
        "image.manager.tag": tag,
        "image.manager.pullPolicy": "Never",
        "resources.requests.cpu": "50m",
        "resources.requests.memory": "64Mi",
    }
    settings = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
    chart = asset(cluster, "manager", "chart")
    helm = [f"{cluster.bin}/helm", "--kubeconfig", str(cluster.kubeconfig)]
    target = ["--namespace", LWS_NAMESPACE, "--create-namespace"]
    try:
        run([*helm, "upgrade", "--install", "lws", str(chart), *target, *settings])
    except CommandFailed as error:
        raise CommandFailed(f"installing LeaderWorkerSet failed: {error}") from error
