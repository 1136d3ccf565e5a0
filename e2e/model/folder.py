"""The model folder in the cache: named by its recipe, complete or absent, made once."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from e2e.cache import cache_root, content_hash, locked
from e2e.model import source


class ModelError(Exception):
    """The model could not be fetched or converted; the message says what would work."""


def built_model_folder() -> Path | None:
    """The finished folder, or None where `python -m e2e.model` has not made it yet."""
    folder = _folder()
    return folder if folder.is_dir() else None


def model_folder() -> Path:
    """The finished folder; fetched and converted on the first call (about a minute)."""
    folder = _folder()
    if folder.is_dir():
        return folder
    with locked(folder.parent):
        if not folder.is_dir():
            _make(folder)
    return folder


def _folder() -> Path:
    recipe = content_hash(
        [Path(__file__).with_name(name).read_bytes() for name in ("source.py", "convert.py")]
    )
    return cache_root() / "models" / f"smollm2-135m-instruct-{recipe}"


def _make(folder: Path) -> None:
    print("model: fetching and converting SmolLM2-135M-Instruct (about 60 s)", file=sys.stderr)
    # Beside its final place, so that the last step is one rename on one file system.
    scratch = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
    try:
        try:
            gguf = source.fetch_gguf(scratch)
        except source.FetchError as error:
            raise ModelError(str(error)) from error
        os.environ.setdefault("TQDM_DISABLE", "1")  # one line of ours says what happens
        # Imported here: everything but the conversion must work without torch.
        from e2e.model.convert import convert

        convert(gguf, scratch / "model")
        (scratch / "model").rename(folder)
    finally:
        shutil.rmtree(scratch)
