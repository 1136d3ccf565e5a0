"""The control groups under which all pods live: one folder per hierarchy, version 1 or 2."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from e2e.cluster.errors import NotReadyInTime
from e2e.cluster.waiting import wait_until

NAME = "pagefleet"
CPUSET_FILES = ("cpuset.cpus", "cpuset.mems")


def hierarchies(root: Path = Path("/sys/fs/cgroup")) -> list[Path]:
    """Version 2: the mount itself. Version 1: one folder per controller."""
    if (root / "cgroup.controllers").exists():
        return [root]
    return [path for path in sorted(root.iterdir()) if path.is_dir() and not path.is_symlink()]


def groups() -> list[Path]:
    """Our folders that exist now."""
    return [path / NAME for path in hierarchies() if (path / NAME).is_dir()]


def create() -> None:
    """Make our folder in every hierarchy, able to hold pods."""
    for hierarchy in hierarchies():
        group = hierarchy / NAME
        group.mkdir(exist_ok=True)
        if (hierarchy / "cgroup.controllers").exists():
            _enable_controllers(hierarchy)
        for name in CPUSET_FILES:
            # In version 1 a new cpuset is empty, and no process can enter an empty one.
            if (group / name).exists() and not (group / name).read_text().strip():
                (group / name).write_text((hierarchy / name).read_text())


def processes() -> set[int]:
    """Every process in our groups: sandboxes and containers."""
    return {
        int(line)
        for group in groups()
        for path in group.rglob("cgroup.procs")
        for line in _read(path).split()
    }


def kill_processes() -> None:
    """End what is left of the pods."""

    def all_ended() -> bool:
        for pid in processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not processes()

    with suppress(NotReadyInTime):
        wait_until(all_ended, what="the last containers to end", timeout=10)


def remove() -> None:
    """Remove our folders, innermost first."""
    for group in groups():
        for folder in _innermost_first(group):
            with suppress(OSError):
                folder.rmdir()


def _innermost_first(group: Path) -> Iterator[Path]:
    return (Path(folder) for folder, _, _ in os.walk(group, topdown=False))


def _enable_controllers(hierarchy: Path) -> None:
    for controller in (hierarchy / "cgroup.controllers").read_text().split():
        with suppress(OSError):
            (hierarchy / "cgroup.subtree_control").write_text(f"+{controller}")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
