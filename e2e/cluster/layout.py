"""Where the cluster lives on this machine: its folders and its addresses."""

from dataclasses import dataclass
from pathlib import Path

from e2e.cache import cache_root

NAMESPACE = "pf"
BRIDGE = "pf0"
HOST_LINK = "pfh"
NODE_LINK = "pfn"
NODE_NAME = "pagefleet-node"

NODE_IP = "10.200.0.1"
HOST_IP = "10.200.0.2"
NODE_NET = "10.200.0.0/24"
SERVICE_NET = "10.96.0.0/16"
POD_NET = "10.244.0.0/24"
API_SERVICE_IP = "10.96.0.1"
DNS_IP = "10.96.0.10"

API_SERVER = f"https://{NODE_IP}:6443"
REGISTRY = f"{NODE_IP}:5000"
ETCD = "http://127.0.0.1:2379"


@dataclass(frozen=True, slots=True)
class Layout:
    """Every folder of the cluster, none of them inside the clone."""

    cache: Path
    run: Path = Path("/run/pagefleet")
    # The kubelet's volumes stay off /run: there they could be memory, charged to the pods.
    var: Path = Path("/var/lib/pagefleet")

    @property
    def kubeconfig(self) -> Path:
        return self.run / "kubeconfig"

    @property
    def bin(self) -> Path:
        return self.run / "bin"

    @property
    def pki(self) -> Path:
        return self.run / "pki"

    @property
    def config(self) -> Path:
        return self.run / "config"

    @property
    def logs(self) -> Path:
        return self.run / "logs"

    @property
    def pids(self) -> Path:
        return self.run / "pids"

    @property
    def etcd(self) -> Path:
        return self.run / "etcd"

    @property
    def containerd(self) -> Path:
        return self.run / "containerd"

    @property
    def containerd_socket(self) -> Path:
        return self.containerd / "containerd.sock"

    @property
    def image_store(self) -> Path:
        return self.cache / "containerd"

    @property
    def registry_store(self) -> Path:
        return self.cache / "registry"

    @property
    def programs(self) -> Path:
        return self.cache / "bin"

    @classmethod
    def default(cls) -> "Layout":
        return cls(cache=cache_root())
