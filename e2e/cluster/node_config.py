"""The configuration files of the node's programs, as text; nothing here touches the machine."""

import json
from pathlib import Path

import yaml

from e2e.cluster import cgroups, layout

# Inside the node's mount namespace our containerd has the paths that every tool expects.
CONTAINERD_FOLDER = "/run/containerd"
CONTAINERD_SOCKET = f"{CONTAINERD_FOLDER}/containerd.sock"


def containerd_toml(
    *, pause_image: str, image_store: Path, registry_hosts: Path, cni_bin: Path, cni_config: Path
) -> str:
    """restrict_oom_score_adj: without CAP_SYS_RESOURCE no sandbox starts otherwise."""
    return f"""\
version = 2
root = "{image_store}"
state = "{CONTAINERD_FOLDER}"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause_image}"
restrict_oom_score_adj = true
disable_apparmor = true
max_concurrent_downloads = 2
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{cni_bin}"
conf_dir = "{cni_config}"
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "{registry_hosts}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
"""


def registry_hosts_toml() -> str:
    """The registry inside the namespace speaks plain HTTP."""
    url = f"http://{layout.REGISTRY}"
    return f'server = "{url}"\n[host."{url}"]\ncapabilities = ["pull", "resolve"]\n'


def registry_yaml(store: Path) -> str:
    """Debian's docker-registry, on the node's address, with deletion allowed."""
    document = {
        "version": "0.1",
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {
            "filesystem": {"rootdirectory": str(store)},
            "delete": {"enabled": True},
        },
        "http": {"addr": layout.REGISTRY},
    }
    return yaml.safe_dump(document, sort_keys=False)


def cni_conflist() -> str:
    """Pods on a bridge, addresses counted on this node, and host ports."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": layout.POD_NET}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    port_map = {"type": "portmap", "capabilities": {"portMappings": True}}
    plugins = [bridge, port_map]
    return json.dumps({"cniVersion": "1.0.0", "name": "pagefleet", "plugins": plugins}, indent=2)


def kubelet_yaml(pki: Path, *, pod_logs: Path) -> str:
    """A node that works with both versions of control groups and never evicts for disk."""
    document = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "address": layout.NODE_IP,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(pki / "ca.crt")},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "tlsCertFile": str(pki / "kubelet-server.crt"),
        "tlsPrivateKeyFile": str(pki / "kubelet-server.key"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroups.NAME}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDomain": "cluster.local",
        "clusterDNS": [layout.DNS_IP],
        # The host's resolvers are out of the namespace's reach.
        "resolvConf": "",
        "podLogsDir": str(pod_logs),
        "serializeImagePulls": False,
        "evictionHard": {
            "memory.available": "200Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
        },
        # Imported images cannot be pulled again, so none is ever collected.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        # Both defaults need rights that a container or a small virtual machine may not have.
        "maxOpenFiles": 20000,
        "oomScoreAdj": 0,
    }
    return yaml.safe_dump(document, sort_keys=False)


def kube_proxy_yaml(kubeconfig: Path) -> str:
    """Zeros: the connection-tracking limits belong to the host and are read-only here."""
    document = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "mode": "iptables",
        "clusterCIDR": layout.POD_NET,
        "hostnameOverride": layout.NODE_NAME,
        "oomScoreAdj": 0,
        "iptables": {"minSyncPeriod": "0s"},
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }
    return yaml.safe_dump(document, sort_keys=False)
