"""A stand-in for the ordinary Python base image, made of Debian packages without a registry."""

import shutil
import subprocess
from pathlib import Path

from e2e.cluster.commands import run
from e2e.images.buildah import Buildah

SUITE = "bookworm"
PACKAGES = ("ca-certificates", "python3", "python3-venv")
# 275 MB come down to 133 MB.
UNNEEDED = (
    "usr/share/doc",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/man",
    "var/cache/apt",
    "var/lib/apt/lists",
    "var/log",
)
BASE_RECIPE = (SUITE, *PACKAGES, *UNNEEDED)


def build_base(buildah: Buildah, name: str, scratch: Path) -> None:
    """Bootstrap Debian into `scratch` and commit it as one layer."""
    root = scratch / "root"
    archive = scratch / "root.tar"
    run(
        [
            "debootstrap",
            "--variant=minbase",
            f"--include={','.join(PACKAGES)}",
            SUITE,
            str(root),
        ],
        timeout=900,
    )
    for folder in UNNEEDED:
        shutil.rmtree(root / folder)
        (root / folder).mkdir()
    subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
    shutil.rmtree(root)
    buildah.commit_archive(archive, name)
    archive.unlink()
