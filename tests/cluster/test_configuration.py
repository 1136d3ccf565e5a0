"""The files and command lines of the cluster's programs, without starting any."""

import base64
import json
import tomllib
from pathlib import Path

import pytest
import yaml

from e2e.cluster import control_plane, layout, node, node_config
from e2e.cluster.kubeconfig import render_kubeconfig, write_kubeconfig
from e2e.cluster.layout import Layout
from e2e.cluster.node_labels import cpu_labels

PKI = Path("/run/pagefleet/pki")


@pytest.fixture
def cluster(tmp_path: Path) -> Layout:
    return Layout(cache=tmp_path / "cache", run=tmp_path / "run", var=tmp_path / "var")


def containerd() -> dict[str, object]:
    text = node_config.containerd_toml(
        pause_image="pagefleet.local/pause:1",
        image_store=Path("/cache/containerd"),
        registry_hosts=Path("/run/pagefleet/config/certs.d"),
        cni_bin=Path("/usr/lib/cni"),
        cni_config=Path("/run/pagefleet/config/cni"),
    )
    plugins = tomllib.loads(text)["plugins"]
    cri: dict[str, object] = plugins["io.containerd.grpc.v1.cri"]
    return cri


def test_sandboxes_start_without_cap_sys_resource() -> None:
    assert containerd()["restrict_oom_score_adj"] is True
    kubelet = yaml.safe_load(node_config.kubelet_yaml(PKI, pod_logs=Path("/logs")))
    assert kubelet["oomScoreAdj"] == 0
    assert kubelet["maxOpenFiles"] <= 20000


def test_kubelet_accepts_both_versions_of_control_groups() -> None:
    kubelet = yaml.safe_load(node_config.kubelet_yaml(PKI, pod_logs=Path("/logs")))
    assert kubelet["failCgroupV1"] is False
    assert kubelet["cgroupDriver"] == "cgroupfs"


def test_kubelet_lets_only_certificate_holders_in() -> None:
    kubelet = yaml.safe_load(node_config.kubelet_yaml(PKI, pod_logs=Path("/logs")))
    assert kubelet["authentication"]["anonymous"] == {"enabled": False}
    assert kubelet["authentication"]["x509"] == {"clientCAFile": "/run/pagefleet/pki/ca.crt"}


def test_imported_images_are_never_collected() -> None:
    kubelet = yaml.safe_load(node_config.kubelet_yaml(PKI, pod_logs=Path("/logs")))
    assert kubelet["imageGCHighThresholdPercent"] == 100
    assert kubelet["evictionHard"]["imagefs.available"] == "0%"


def test_registry_is_pulled_from_without_tls() -> None:
    hosts = tomllib.loads(node_config.registry_hosts_toml())
    assert hosts["server"] == "http://10.200.0.1:5000"
    assert list(hosts["host"]) == ["http://10.200.0.1:5000"]
    assert containerd()["registry"] == {"config_path": "/run/pagefleet/config/certs.d"}


def test_pods_get_addresses_that_the_host_routes() -> None:
    bridge = json.loads(node_config.cni_conflist())["plugins"][0]
    assert bridge["ipam"]["ranges"] == [[{"subnet": layout.POD_NET}]]
    assert bridge["hairpinMode"] is True


def test_controller_manager_uses_service_accounts(cluster: Layout) -> None:
    command = control_plane.command_lines(cluster)["kube-controller-manager"]
    assert "--use-service-account-credentials=true" in command


def test_programs_are_started_by_absolute_paths(cluster: Layout) -> None:
    commands = [*control_plane.command_lines(cluster).values(), node.kubelet_command(cluster)]
    for command in commands:
        assert command[0].startswith(f"{cluster.bin}/"), command


def test_nothing_of_the_node_is_mounted_on_the_host(cluster: Layout) -> None:
    mounts = node.private_mounts(cluster)
    assert mounts[0] == "mount --make-rshared /"
    assert all(folder in " ".join(mounts) for folder in node.PRIVATE_FOLDERS)


def test_kubeconfig_carries_its_certificates(tmp_path: Path) -> None:
    for name in ("ca.crt", "admin.crt", "admin.key"):
        (tmp_path / name).write_text(f"content of {name}")
    document = yaml.safe_load(render_kubeconfig(tmp_path, "admin"))
    user = document["users"][0]["user"]
    assert document["clusters"][0]["cluster"]["server"] == "https://10.200.0.1:6443"
    assert base64.b64decode(user["client-key-data"]) == b"content of admin.key"
    assert document["current-context"] == document["contexts"][0]["name"]


def test_kubeconfig_is_for_its_owner_only(tmp_path: Path) -> None:
    for name in ("ca.crt", "admin.crt", "admin.key"):
        (tmp_path / name).write_text("x")
    write_kubeconfig(tmp_path / "out" / "kubeconfig", pki=tmp_path, client="admin")
    assert (tmp_path / "out" / "kubeconfig").stat().st_mode & 0o777 == 0o600


def test_cache_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEFLEET_CACHE", "/big/disk")
    assert Layout.default().cache == Path("/big/disk")


def test_processor_labels_are_those_of_feature_discovery() -> None:
    labels = cpu_labels("processor: 0\nflags\t\t: fpu avx2 avx512_bf16 amx_bf16\n")
    assert labels == {
        "feature.node.kubernetes.io/cpu-cpuid.AVX2": "true",
        "feature.node.kubernetes.io/cpu-cpuid.AVX512BF16": "true",
        "feature.node.kubernetes.io/cpu-cpuid.AMXBF16": "true",
    }
