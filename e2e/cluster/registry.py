"""The image registry inside the cluster's namespace; it starts first and needs nothing else."""

import urllib.error
import urllib.request

from e2e.cluster import layout, network
from e2e.cluster.debian import find_program
from e2e.cluster.layout import Layout
from e2e.cluster.network import IN_NAMESPACE
from e2e.cluster.node_config import registry_yaml
from e2e.cluster.processes import Processes
from e2e.cluster.waiting import wait_until

NAME = "registry"
USUAL_SECONDS = 1


def is_up(processes: Processes) -> bool:
    """Running, and reachable from the host."""
    return processes.is_running(NAME) and network.is_up() and _answers()


def start(cluster: Layout, processes: Processes) -> None:
    """Start it on storage that outlives the cluster."""
    config = cluster.run / "registry.yaml"
    cluster.registry_store.mkdir(parents=True, exist_ok=True)
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(registry_yaml(cluster.registry_store))
    program = find_program("docker-registry") or "docker-registry"
    processes.start(NAME, [*IN_NAMESPACE, program, "serve", str(config)])
    wait_until(_answers, what="the registry", timeout=20, check=lambda: processes.check(NAME))


def _answers() -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{layout.REGISTRY}/v2/", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
