"""A container image with one static program in it, written without any image tool."""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class TinyImage:
    """One program, run as a user number that needs no /etc/passwd."""

    name: str
    program: Path
    user: str = "65532"

    def write(self, target: Path) -> None:
        """Write the archive in the form that `docker save` has and containerd imports."""
        path = f"/{self.program.name}"
        layer = tar({path.lstrip("/"): self.program.read_bytes()}, mode=0o755)
        config = {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Entrypoint": [path], "User": self.user},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_sha256(layer)}"]},
        }
        manifest = [{"Config": "config.json", "RepoTags": [self.name], "Layers": ["layer.tar"]}]
        files = {
            "layer.tar": layer,
            "config.json": json.dumps(config).encode(),
            "manifest.json": json.dumps(manifest).encode(),
        }
        target.write_bytes(tar(files, mode=0o644))


def tar(files: Mapping[str, bytes], *, mode: int) -> bytes:
    """A tar archive without times or owners: equal content gives equal bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
