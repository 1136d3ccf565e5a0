"""Install what the node needs from the distribution's own packages, and only what is missing."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.commands import run
from e2e.cluster.errors import CommandFailed, MissingPrerequisite
from e2e.cluster.progress import Progress

POLICY = Path("/usr/sbin/policy-rc.d")
REFUSE_TO_START = "#!/bin/sh\nexit 101\n"
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
SEARCH_PATH = f"{os.defpath}:/usr/sbin:/sbin:/usr/local/bin:/usr/local/sbin"
LOCK_PATIENCE = "DPkg::Lock::Timeout=300"


@dataclass(frozen=True, slots=True)
class Package:
    """A Debian package, and the program by which its presence is known."""

    name: str
    program: str


PACKAGES = (
    Package("containerd", "containerd"),
    Package("runc", "runc"),
    Package("iptables", "iptables"),
    Package("conntrack", "conntrack"),
    Package("socat", "socat"),
    Package("ethtool", "ethtool"),
    Package("iproute2", "ip"),
    Package("docker-registry", "docker-registry"),
)
CNI_PACKAGE = "containernetworking-plugins"


def find_program(name: str) -> str | None:
    """Its path, also where root's PATH is short."""
    return shutil.which(name) or shutil.which(name, path=SEARCH_PATH)


def cni_folder() -> Path | None:
    """Where the network plugins are."""
    return next((path for path in CNI_FOLDERS if (path / "bridge").exists()), None)


def missing_packages() -> list[str]:
    """Packages whose program is not on this machine."""
    missing = [package.name for package in PACKAGES if find_program(package.program) is None]
    return missing if cni_folder() else [*missing, CNI_PACKAGE]


def install_packages(progress: Progress, *, lock: Path) -> None:
    """Install what the node misses; none of its services is started."""
    install_missing(missing_packages, progress, lock=lock)


def install_missing(
    find_missing: Callable[[], list[str]], progress: Progress, *, lock: Path
) -> None:
    """Install what `find_missing` names, and only one caller at a time."""
    if not find_missing():
        return
    if shutil.which("apt-get") is None:
        raise MissingPrerequisite(
            f"this machine has no apt-get; install these by hand: {', '.join(find_missing())}"
        )
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        missing = find_missing()
        if missing:
            with progress.step(f"Installing {', '.join(missing)}", usually=20):
                _apt_install(missing)


def _apt_install(packages: list[str]) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    options = ["-o", LOCK_PATIENCE, "-q", "-y", "--no-install-recommends"]
    try:
        run(["apt-get", "-q", "update"], env=environment, timeout=600)
        with _services_stay_stopped():
            run(["apt-get", *options, "install", *packages], env=environment, timeout=900)
    except CommandFailed as error:
        raise MissingPrerequisite(
            f"`apt-get install {' '.join(packages)}` did not work: {error}"
        ) from error


@contextmanager
def _services_stay_stopped() -> Iterator[None]:
    """Debian asks policy-rc.d before it starts a freshly installed service."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text(REFUSE_TO_START)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)
