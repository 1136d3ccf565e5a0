"""Where artefacts that outlive a clone are kept: models, base images, image layers."""

import fcntl
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_root() -> Path:
    """`$PAGEFLEET_CACHE`, or `~/.cache/pagefleet`."""
    stated = os.environ.get("PAGEFLEET_CACHE")
    return Path(stated).expanduser().absolute() if stated else Path.home() / ".cache/pagefleet"


def content_hash(parts: Iterable[bytes | str]) -> str:
    """Twelve hex digits over the parts, each preceded by its length so that none can shift."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()[:12]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder for one process at a time; the lock goes with the process that holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
