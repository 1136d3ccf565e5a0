"""The tiny image: what a container runtime reads from it."""

import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from e2e.cluster.image_archive import TinyImage


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    program = tmp_path / "pause"
    program.write_bytes(b"\x7fELF")
    TinyImage(name="pagefleet.local/pause:1", program=program).write(tmp_path / "image.tar")
    return tmp_path / "image.tar"


def member(archive: Path, name: str) -> bytes:
    with tarfile.open(archive) as opened:
        extracted = opened.extractfile(name)
        assert extracted is not None
        return extracted.read()


def test_layer_is_the_one_the_config_names(archive: Path) -> None:
    config = json.loads(member(archive, "config.json"))
    digest = hashlib.sha256(member(archive, "layer.tar")).hexdigest()
    assert config["rootfs"]["diff_ids"] == [f"sha256:{digest}"]


def test_program_is_executable_and_started_without_root(archive: Path, tmp_path: Path) -> None:
    config = json.loads(member(archive, "config.json"))["config"]
    (tmp_path / "layer.tar").write_bytes(member(archive, "layer.tar"))
    with tarfile.open(tmp_path / "layer.tar") as layer:
        assert layer.getmember("pause").mode == 0o755
    assert config == {"Entrypoint": ["/pause"], "User": "65532"}


def test_equal_content_gives_equal_bytes(archive: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.tar"
    TinyImage(name="pagefleet.local/pause:1", program=tmp_path / "pause").write(again)
    assert again.read_bytes() == archive.read_bytes()
