"""Call buildah on a storage of our own, so that nobody else's images are seen or touched."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.commands import run, succeeds
from e2e.images.dockerfile import ROOT

LONGEST_BUILD = 3600.0


@dataclass(frozen=True, slots=True)
class Buildah:
    """buildah with its images, containers and temporary files below one folder."""

    folder: Path

    @property
    def scratch(self) -> Path:
        return self.folder / "tmp"

    def exists(self, image: str) -> bool:
        return succeeds(self._command("inspect", "--type", "image", image))

    def names(self) -> list[str]:
        listed = json.loads(self._run("images", "--json") or "[]") or []
        return [name for image in listed for name in image.get("names") or []]

    def size(self, image: str) -> int:
        """Bytes of all its layers, unpacked."""
        (listed,) = json.loads(self._run("images", "--json", image))
        return _bytes(listed["size"])

    def build(self, target: str, name: str, *options: str, args: Mapping[str, str]) -> None:
        """Build one target of the Dockerfile; images that `args` name are taken as they are."""
        stated = [word for key, value in args.items() for word in ("--build-arg", f"{key}={value}")]
        # chroot and the host's network need no container runtime and no bridge. Without --layers
        # a stage is committed once; what may be kept is named by our own hashes.
        self._run(
            "bud",
            "--isolation=chroot",
            "--network=host",
            "--layers=false",
            "--pull=never",
            *stated,
            *options,
            f"--target={target}",
            f"--tag={name}",
            str(ROOT),
        )

    def commit_archive(self, archive: Path, name: str) -> None:
        """An image of one layer with the content of a tar file."""
        container = self._run("from", "scratch").strip()
        self._run("add", "--quiet", container, str(archive), "/")
        self._run("config", "--cmd", "/bin/sh", container)
        self._run("commit", "--quiet", "--rm", container, name)

    def push(self, image: str, destination: str) -> None:
        """Layers that the registry already has are not sent again."""
        self._run(
            "push",
            "--quiet",
            "--tls-verify=false",
            "--format=oci",
            "--compression-format=zstd",
            "--compression-level=1",
            image,
            f"docker://{destination}",
        )

    def remove(self, image: str) -> None:
        self._run("rmi", image)

    def clean(self) -> None:
        """Drop what a build that was interrupted left behind."""
        self._run("rm", "--all")

    def unmount(self) -> None:
        """Unmount what is below our folder: buildah leaves the mounts of `RUN --mount` behind."""
        for point in mounts_below(self.folder, Path("/proc/self/mounts").read_text()):
            run(["umount", point])

    def _run(self, *arguments: str) -> str:
        environment = {**os.environ, "TMPDIR": str(self.scratch)}
        return run(self._command(*arguments), env=environment, timeout=LONGEST_BUILD)

    def _command(self, *arguments: str) -> Sequence[str]:
        storage = ["--root", str(self.folder / "storage"), "--runroot", str(self.folder / "run")]
        return ["buildah", *storage, "--storage-driver", "overlay", *arguments]


def mounts_below(folder: Path, table: str) -> list[str]:
    """Mount points of a mount table at or below the folder, the innermost first."""
    points = [line.split()[1] for line in table.splitlines()]
    inside = [point for point in points if Path(point).is_relative_to(folder)]
    return sorted(inside, key=len, reverse=True)


def _bytes(text: str) -> int:
    """`5.5 GB` as buildah writes it, in units of 1000."""
    number, unit = text.split()
    return int(float(number) * 1000 ** ["B", "KB", "MB", "GB"].index(unit.upper()))
