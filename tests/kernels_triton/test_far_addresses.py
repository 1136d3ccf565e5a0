"""Addresses past 2**31: an offset of 32 bits would wrap, and the process would die or read garbage.

Covered: blocks at the end of large pools, written, read and copied; partial results; rows far apart
of every tensor whose strides a caller chooses. Left out: CUDA.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import far_addresses

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bool]:
    """Whether each check ended well; one process starts them all, since starting takes longest."""
    done = subprocess.run(
        [sys.executable, "-m", far_addresses.__name__, str(tmp_path_factory.mktemp("rooms"))],
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'kernels'}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    sys.stderr.write(done.stderr)  # tracebacks, shown if a check failed
    found: dict[str, bool] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", far_addresses.CHECKS)
def test_offsets_are_of_64_bits(name: str, outcome: dict[str, bool]) -> None:
    assert outcome[name]
