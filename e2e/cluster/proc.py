"""Read the process table: who lives, since when, and which processes carry the cluster's mark."""

import os
from collections.abc import Iterator
from pathlib import Path

# In the environment of everything the cluster starts, with the run folder as its value.
MARK = "PAGEFLEET_CLUSTER"


def start_ticks(pid: int) -> int | None:
    """The kernel's start time of a living process; a pid and this number never come back."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])


def pids() -> Iterator[int]:
    """Every process on the machine."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def marked(run_folder: Path) -> list[int]:
    """Living processes that the cluster of this run folder started, children included."""
    mark = f"{MARK}={run_folder}".encode()
    return [pid for pid in pids() if mark in _environment(pid) and start_ticks(pid) is not None]


def command_line(pid: int) -> str:
    """What a process was started as, for messages."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return raw.replace(b"\0", b" ").decode(errors="replace").strip()


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
