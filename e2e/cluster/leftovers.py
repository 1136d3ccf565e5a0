"""What the cluster has put on this machine: to see that nothing stays, and what a crash left."""

import os
from dataclasses import dataclass, fields
from pathlib import Path

from e2e.cluster import cgroups, layout, proc
from e2e.cluster.layout import Layout
from e2e.cluster.network import NETNS, NETNS_FOLDER, host_routes

PROGRAM_NAMES = ("containerd", "kube", "etcd", "kwok", "coredns", "docker-registry", "pause")


def leftovers(cluster: Layout) -> list[str]:
    """Everything of this cluster that is there now, one line each; empty after `down`."""
    found = [f"process {pid}: {proc.command_line(pid)}" for pid in proc.marked(cluster.run)]
    found += [f"container process {pid}" for pid in sorted(cgroups.processes())]
    found += [f"mount {mount}" for mount in _mounts() if _is_ours(mount, cluster)]
    found += [f"cgroup {group}" for group in cgroups.groups()]
    found += [f"link {name}" for name in _links() if name == layout.HOST_LINK]
    found += [
        f"route {route['dst']}" for route in host_routes() if route.get("dev") == layout.HOST_LINK
    ]
    found += [f"namespace {NETNS}"] if NETNS.exists() else []
    found += [f"folder {folder}" for folder in (cluster.run, cluster.var) if folder.exists()]
    return found


@dataclass(frozen=True, slots=True)
class MachineState:
    """The kinds of things a cluster could leave, whoever they belong to."""

    processes: frozenset[str]
    mounts: frozenset[str]
    cgroups: frozenset[str]
    links: frozenset[str]
    routes: frozenset[str]
    namespaces: frozenset[str]

    @classmethod
    def read(cls) -> "MachineState":
        return cls(
            processes=frozenset(_cluster_like_processes()),
            mounts=frozenset(_mounts()),
            cgroups=frozenset(_top_cgroups()),
            links=frozenset(_links()),
            routes=frozenset(f"{route['dst']} {route.get('dev')}" for route in host_routes()),
            namespaces=frozenset(os.listdir(NETNS_FOLDER) if NETNS_FOLDER.is_dir() else ()),
        )

    def added_since(self, before: "MachineState") -> list[str]:
        """What is here now and was not before."""
        return [
            f"{field.name}: {thing}"
            for field in fields(self)
            for thing in sorted(getattr(self, field.name) - getattr(before, field.name))
        ]


def _is_ours(mount: str, cluster: Layout) -> bool:
    folders = (cluster.run, cluster.var, cluster.image_store, NETNS)
    return any(mount == str(folder) or mount.startswith(f"{folder}/") for folder in folders)


def _mounts() -> list[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [line.split()[1] for line in lines]


def _links() -> list[str]:
    return sorted(os.listdir("/sys/class/net"))


def _top_cgroups() -> list[str]:
    return [
        str(path)
        for hierarchy in cgroups.hierarchies()
        for path in hierarchy.iterdir()
        if path.is_dir()
    ]


def _cluster_like_processes() -> list[str]:
    commands = {pid: proc.command_line(pid) for pid in proc.pids()}
    return [
        f"{pid} {command}"
        for pid, command in commands.items()
        if Path(command.split(" ")[0]).name.startswith(PROGRAM_NAMES)
    ]
