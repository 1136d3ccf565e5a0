"""Our own tiny images in the node's image store: pause, CoreDNS and LeaderWorkerSet."""

import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.commands import run
from e2e.cluster.debian import find_program
from e2e.cluster.errors import CommandFailed
from e2e.cluster.image_archive import TinyImage
from e2e.cluster.layout import Layout

REPOSITORY = "pagefleet.local"


@dataclass(frozen=True, slots=True)
class ImageStore:
    """containerd's images, as the kubelet sees them."""

    cluster: Layout

    def ensure(self, image: TinyImage) -> None:
        """Import the image unless an earlier cluster has; its tag names its content."""
        if image.name in self.names():
            return
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder) / "image.tar"
            image.write(archive)
            self._ctr("images", "import", str(archive))

    def names(self) -> set[str]:
        return set(self._ctr("images", "ls", "-q").split())

    def remove_containers(self) -> None:
        """Remove the records of ended containers and their writable layers."""
        for container in self._ctr("containers", "ls", "-q").split():
            with suppress(CommandFailed):
                self._ctr("containers", "rm", container)

    def _ctr(self, *arguments: str) -> str:
        program = find_program("ctr") or "ctr"
        socket = str(self.cluster.containerd_socket)
        return run([program, "-a", socket, "-n", "k8s.io", *arguments])


def image_of(program: Path, *, user: str = "65532") -> TinyImage:
    """The image of a built program: named after it, tagged with its build's key."""
    tag = program.resolve().parent.name
    return TinyImage(name=f"{REPOSITORY}/{program.name}:{tag}", program=program, user=user)
