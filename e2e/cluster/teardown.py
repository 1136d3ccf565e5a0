"""Take everything away, in the order in which nothing hangs; also after a crash at any point."""

import shutil
from contextlib import suppress
from pathlib import Path

from e2e.cluster import addons, cgroups, network, registry
from e2e.cluster.errors import CommandFailed, NotReadyInTime
from e2e.cluster.images import ImageStore
from e2e.cluster.kubectl import Kubectl
from e2e.cluster.layout import Layout
from e2e.cluster.processes import Processes
from e2e.cluster.waiting import wait_until

PODS_PATIENCE_SECONDS = 15

# First what would start new pods, last what the others need in order to stop.
BEFORE_PODS = (addons.KWOK, "kube-scheduler", "kube-controller-manager")
AFTER_PODS = ("kubelet", "kube-proxy")
AFTER_CONTAINERS = ("containerd", "kube-apiserver", "etcd", registry.NAME)


def tear_down(cluster: Layout, processes: Processes) -> None:
    """Every step tolerates that its object is gone already."""
    for name in BEFORE_PODS:
        processes.stop(name)
    _delete_pods(cluster, processes)
    for name in AFTER_PODS:
        processes.stop(name)
    cgroups.kill_processes()
    _forget_containers(cluster, processes)
    for name in AFTER_CONTAINERS:
        processes.stop(name)
    processes.stop_strays()
    network.remove(marker=netns_marker(cluster))
    cgroups.remove()
    shutil.rmtree(cluster.var, ignore_errors=True)
    shutil.rmtree(cluster.run, ignore_errors=True)


def netns_marker(cluster: Layout) -> Path:
    """Exists when the mount under /run/netns was made for this cluster."""
    return cluster.run / "made-netns-mount"


def _delete_pods(cluster: Layout, processes: Processes) -> None:
    """The kubelet ends them properly; what it cannot end in time is killed afterwards."""
    if not (processes.is_running("kube-apiserver") and processes.is_running("kubelet")):
        return
    kubectl = Kubectl(program=cluster.bin / "kubectl", kubeconfig=cluster.kubeconfig)
    options = ("--all", "--all-namespaces", "--grace-period=1", "--wait=false")
    with suppress(CommandFailed, NotReadyInTime):
        kubectl("delete", "pods", "--request-timeout=10s", *options)
        wait_until(
            lambda: not cgroups.processes(),
            what="the pods to end",
            timeout=PODS_PATIENCE_SECONDS,
        )


def _forget_containers(cluster: Layout, processes: Processes) -> None:
    """The image store outlives the cluster; records of dead containers should not."""
    if processes.is_running("containerd"):
        with suppress(CommandFailed):
            ImageStore(cluster).remove_containers()
