"""Hashes that cannot be confused, and one process at a time in a folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from e2e.cache import cache_root, content_hash, locked

TRY_LOCK = """
import fcntl, sys
try:
    fcntl.flock(open(sys.argv[1], "w"), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit(7)
"""


def test_parts_cannot_shift_into_each_other() -> None:
    assert content_hash(["ab", "c"]) != content_hash(["a", "bc"])
    assert content_hash(["a", b"b"]) == content_hash([b"a", "b"])


def test_cache_is_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEFLEET_CACHE", str(tmp_path))
    assert cache_root() == tmp_path
    monkeypatch.delenv("PAGEFLEET_CACHE")
    assert cache_root() == Path.home() / ".cache/pagefleet"


def test_a_locked_folder_is_closed_to_other_processes(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TRY_LOCK, str(tmp_path / ".lock")]
    with locked(tmp_path):
        assert subprocess.run(command, check=False).returncode == 7
    assert subprocess.run(command, check=False).returncode == 0
