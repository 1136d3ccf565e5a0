"""A release's packages in a folder of their own in the cache: the environment stays as it is."""

import shutil
import subprocess
import sys
from pathlib import Path

from bench.triton_window.errors import WindowError
from bench.triton_window.releases import Release
from e2e.cache import cache_root, content_hash, locked


def packages_of(release: Release, *, uv: Path | None = None) -> Path:
    """Downloaded once. WindowError if they cannot be had."""
    kind = content_hash([*release.requirements, sys.implementation.cache_tag or ""])
    folder = cache_root() / "triton" / f"{release.triton}-{kind}"
    with locked(folder.parent):
        if not folder.is_dir():
            _install(release, folder, uv or Path(sys.executable).with_name("uv"))
    return folder


def _install(release: Release, folder: Path, uv: Path) -> None:
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    command = [str(uv), "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--python", sys.executable, "--target", str(partial), *release.requirements]
    wanted = " and ".join(release.requirements)
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise WindowError(f"{wanted} need uv, which is not there: make dev ({error})") from error
    if done.returncode:
        raise WindowError(
            f"{wanted} cannot be had, so the kernels are not shown to work with them. Give uv an "
            f"index that has them, or put them into {folder}. uv said:\n{done.stderr.strip()}"
        )
    partial.rename(folder)
