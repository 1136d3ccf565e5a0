"""etcd, the API server, the controller manager and the scheduler."""

import ssl
import urllib.error
import urllib.request
from pathlib import Path

from e2e.cluster import layout
from e2e.cluster.kubeconfig import write_kubeconfig
from e2e.cluster.layout import Layout
from e2e.cluster.network import IN_NAMESPACE
from e2e.cluster.pki import CLIENTS, write_pki
from e2e.cluster.processes import Processes
from e2e.cluster.waiting import wait_until

NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
OPEN_PATHS = "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics"


def start(cluster: Layout, processes: Processes) -> None:
    """Start all four, and return when the API server says it is ready."""
    write_pki(cluster.pki)
    for client in CLIENTS:
        path = cluster.config / f"{client.name}.kubeconfig"
        write_kubeconfig(path, pki=cluster.pki, client=client.name)
    write_kubeconfig(cluster.kubeconfig, pki=cluster.pki, client="admin")
    commands = command_lines(cluster)
    for name in NAMES[:2]:
        processes.start(name, [*IN_NAMESPACE, *commands[name]])
    wait_until(
        lambda: is_ready(cluster.pki),
        what="the API server to be ready",
        timeout=90,
        check=lambda: processes.check("etcd", "kube-apiserver"),
    )
    for name in NAMES[2:]:
        processes.start(name, [*IN_NAMESPACE, *commands[name]])


def is_ready(pki: Path) -> bool:
    """The API server's own answer, its start-up hooks included."""
    if not (pki / "ca.crt").exists():
        return False
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    # Straight to the node: a proxy of the user's environment knows nothing of it.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    try:
        with opener.open(f"{layout.API_SERVER}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def command_lines(cluster: Layout) -> dict[str, list[str]]:
    """What each program is started with."""
    return {
        "etcd": _etcd(cluster),
        "kube-apiserver": _api_server(cluster),
        "kube-controller-manager": _controller_manager(cluster),
        "kube-scheduler": [
            f"{cluster.bin}/kube-scheduler",
            f"--kubeconfig={cluster.config}/scheduler.kubeconfig",
            "--leader-elect=false",
            OPEN_PATHS,
        ],
    }


def _etcd(cluster: Layout) -> list[str]:
    peers = "http://127.0.0.1:2380"
    return [
        f"{cluster.bin}/etcd",
        f"--data-dir={cluster.etcd}",
        f"--listen-client-urls={layout.ETCD}",
        f"--advertise-client-urls={layout.ETCD}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        # The data does not outlive the cluster, so it need not survive a power cut.
        "--unsafe-no-fsync=true",
        "--log-level=warn",
    ]


def _api_server(cluster: Layout) -> list[str]:
    pki = cluster.pki
    return [
        f"{cluster.bin}/kube-apiserver",
        f"--etcd-servers={layout.ETCD}",
        "--secure-port=6443",
        f"--advertise-address={layout.NODE_IP}",
        f"--service-cluster-ip-range={layout.SERVICE_NET}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--profiling=false",
        f"--client-ca-file={pki}/ca.crt",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki}/service-account.pub",
        f"--service-account-signing-key-file={pki}/service-account.key",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        f"--kubelet-client-certificate={pki}/apiserver-kubelet.crt",
        f"--kubelet-client-key={pki}/apiserver-kubelet.key",
    ]


def _controller_manager(cluster: Layout) -> list[str]:
    return [
        f"{cluster.bin}/kube-controller-manager",
        f"--kubeconfig={cluster.config}/controller-manager.kubeconfig",
        "--leader-elect=false",
        # Its own name may do almost nothing; each controller's service account may do its work.
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={cluster.pki}/service-account.key",
        f"--root-ca-file={cluster.pki}/ca.crt",
        OPEN_PATHS,
    ]
