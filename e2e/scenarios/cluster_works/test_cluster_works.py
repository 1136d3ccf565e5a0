"""What every other scenario relies on: pods, names, Services, tokens, logs, exec, port-forward.

The pod runs the cluster's own kubectl as its only program, so no foreign image is needed.
"""

import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster import ExternalCluster, LocalCluster, layout, use_cluster
from e2e.cluster.errors import CommandFailed
from e2e.cluster.images import ImageStore, image_of
from e2e.cluster.kubectl import Kubectl
from e2e.cluster.waiting import wait_until

NAMESPACE = "e2e-cluster-works"
POD = "probe"
PORT = 8001


@pytest.fixture(scope="module")
def cluster() -> LocalCluster:
    found = use_cluster()
    if isinstance(found, ExternalCluster):
        pytest.skip("the cluster of KUBECONFIG is its owner's to check")
    found.up()
    return found


@pytest.fixture(scope="module")
def kubectl(cluster: LocalCluster) -> Iterator[Kubectl]:
    """A namespace with one running pod behind a Service, whose account may look at pods."""
    image = image_of(cluster.layout.bin / "kubectl")
    ImageStore(cluster.layout).ensure(image)
    kubectl = cluster.kubectl
    kubectl("create", "namespace", NAMESPACE)
    kubectl("-n", NAMESPACE, "create", "rolebinding", "look", "--clusterrole=view", _account())
    kubectl.apply(json.dumps(_pod(image.name)))
    kubectl("-n", NAMESPACE, "expose", "pod", POD, f"--port={PORT}")
    kubectl("-n", NAMESPACE, "wait", "--for=condition=Ready", f"pod/{POD}", "--timeout=60s")
    service = readyz(kubectl, "service", "{.spec.clusterIP}")
    wait_until(lambda: is_served(service), what="the Service to have its endpoint", timeout=30)
    yield kubectl
    kubectl("delete", "namespace", NAMESPACE, timeout=120)


def test_pod_uses_its_token_and_may_do_no_more(kubectl: Kubectl) -> None:
    seen = in_pod(kubectl, "get", "pods", "-n", NAMESPACE, "-o", "name")
    assert seen.split() == [f"pod/{POD}"]
    with pytest.raises(CommandFailed, match="forbidden"):
        in_pod(kubectl, "get", "pods", "-n", "kube-system")


def test_pod_resolves_its_service_and_reaches_itself_through_it(kubectl: Kubectl) -> None:
    url = f"http://{POD}.{NAMESPACE}.svc.cluster.local:{PORT}"
    assert in_pod(kubectl, f"--server={url}", "get", "--raw", "/readyz") == "ok"


def test_pod_reaches_the_host(kubectl: Kubectl, tmp_path: Path) -> None:
    (tmp_path / "hello").write_text("from the host")
    port = free_port()
    command = [sys.executable, "-m", "http.server", str(port), "--bind", layout.HOST_IP]
    server = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    url = f"http://{layout.HOST_IP}:{port}"
    try:
        wait_until(lambda: is_served(f"{url}/hello"), what="the host's server", timeout=20)
        assert in_pod(kubectl, f"--server={url}", "get", "--raw", "/hello") == "from the host"
    finally:
        server.terminate()
        server.wait()


@pytest.mark.parametrize(
    ("kind", "path"), [("pod", "{.status.podIP}"), ("service", "{.spec.clusterIP}")]
)
def test_host_reaches_pods_and_services(kubectl: Kubectl, kind: str, path: str) -> None:
    assert fetch(readyz(kubectl, kind, path)) == "ok"


def test_logs_come_through_the_api_server(kubectl: Kubectl) -> None:
    assert "Starting to serve" in kubectl("-n", NAMESPACE, "logs", POD)


def test_ports_are_forwarded(kubectl: Kubectl) -> None:
    port = free_port()
    command = [str(kubectl.program), "--kubeconfig", str(kubectl.kubeconfig), "-n", NAMESPACE]
    forward = subprocess.Popen(
        [*command, "port-forward", f"pod/{POD}", f"{port}:{PORT}"], stdout=subprocess.PIPE
    )
    try:
        assert forward.stdout is not None
        forward.stdout.readline()
        assert fetch(f"http://127.0.0.1:{port}/readyz") == "ok"
    finally:
        forward.terminate()
        forward.communicate()


def test_memory_limit_ends_the_container_that_exceeds_it(kubectl: Kubectl) -> None:
    image = kubectl("-n", NAMESPACE, "get", "pod", POD, "-o", "jsonpath={..image}").split()[0]
    greedy = _pod(image, name="greedy", memory="8Mi")
    kubectl.apply(json.dumps(greedy))

    def was_killed() -> bool:
        status = kubectl("-n", NAMESPACE, "get", "pod", "greedy", "-o", "json")
        return "OOMKilled" in status or '"exitCode": 137' in status

    wait_until(was_killed, what="the container to be killed", timeout=60)


def in_pod(kubectl: Kubectl, *arguments: str) -> str:
    """Run kubectl inside the pod, through exec."""
    return kubectl("-n", NAMESPACE, "exec", POD, "--", "/kubectl", "--cache-dir=/tmp", *arguments)


def readyz(kubectl: Kubectl, kind: str, path: str) -> str:
    """The URL at which the pod passes on the API server's readiness, by pod or Service address."""
    address = kubectl("-n", NAMESPACE, "get", kind, POD, "-o", f"jsonpath={path}")
    return f"http://{address}:{PORT}/readyz"


def fetch(url: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=10) as answer:
        return str(answer.read().decode())


def is_served(url: str) -> bool:
    try:
        return bool(fetch(url))
    except OSError:
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _account() -> str:
    return f"--serviceaccount={NAMESPACE}:default"


def _pod(image: str, *, name: str = POD, memory: str = "256Mi") -> dict[str, object]:
    """Under the strictest pod security profile, as the engine's pods are."""
    proxy = ["/kubectl", "proxy", "--address=0.0.0.0", f"--port={PORT}", "--accept-hosts=.*"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "kubectl",
                    "image": image,
                    "imagePullPolicy": "Never",
                    "command": proxy,
                    "resources": {"limits": {"memory": memory, "cpu": "500m"}},
                    "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }
