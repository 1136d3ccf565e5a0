"""What of the cluster runs, with its memory, and why the rest does not."""

from pathlib import Path

from e2e.cluster.local_cluster import COMPONENTS, LocalCluster

MIB = 1024


def describe(cluster: LocalCluster, *, healthy: bool) -> str:
    """One line per component, and the end of the log of each that died."""
    extra = [name for name in cluster.processes.names() if name not in COMPONENTS]
    lines = [_line(cluster, name) for name in (*COMPONENTS, *extra)]
    lines.append("healthy" if healthy else "not healthy: `up` starts it anew")
    for name in cluster.dead_components():
        lines.append(f"\n{name} ended; the end of its log:\n{cluster.processes.log_tail(name)}")
    return "\n".join(lines)


def _line(cluster: LocalCluster, name: str) -> str:
    record = cluster.processes.record(name)
    if record is None:
        return f"{name:<26} not started"
    if not record.is_running:
        return f"{name:<26} dead"
    return f"{name:<26} running  pid {record.pid:<8} {_resident_mib(record.pid):>5} MiB"


def _resident_mib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // MIB
    return 0
