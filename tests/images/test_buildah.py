"""buildah's storage is left without a mount."""

from pathlib import Path

from e2e.images.buildah import mounts_below

TABLE = """\
/dev/vda / ext4 rw 0 0
/dev/vda /cache/images/storage/overlay ext4 rw 0 0
overlay /cache/images/storage/overlay/1ee4/merged overlay rw 0 0
overlay /cache/images-of-others/merged overlay rw 0 0
"""


def test_mounts_of_our_storage_are_found_innermost_first() -> None:
    assert mounts_below(Path("/cache/images"), TABLE) == [
        "/cache/images/storage/overlay/1ee4/merged",
        "/cache/images/storage/overlay",
    ]


def test_nothing_mounted_is_nothing_to_unmount() -> None:
    assert mounts_below(Path("/elsewhere"), TABLE) == []
