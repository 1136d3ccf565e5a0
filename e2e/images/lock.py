"""Write requirements.lock: one set of versions for every extra, without any index address."""

import subprocess
import sys
from pathlib import Path

from e2e.images.dockerfile import ROOT


def write_lock() -> Path:
    """Resolve anew, keeping versions of the present lock that still fit."""
    lock = ROOT / "requirements.lock"
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv), "pip", "compile", "pyproject.toml", "--all-extras", "--quiet"]
    # Universal over platforms: the markers stay in, and a Mac can use the same file.
    command += ["--universal", "--python-version", "3.11", "--output-file", lock.name]
    command += ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"]
    subprocess.run(command, cwd=ROOT, check=True)
    return lock
