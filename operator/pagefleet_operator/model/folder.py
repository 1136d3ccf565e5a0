"""Inspect a model's folder on a file system."""

import hashlib
from pathlib import Path

from pagefleet_operator.errors import InspectionError
from pagefleet_operator.model.inspected import InspectedModel, read_model
from pagefleet_operator.model.safetensors_header import (
    LENGTH_BYTES,
    FileSummary,
    header_length,
    parse_header,
    shard_names,
)

INDEX = "model.safetensors.index.json"


def inspect_folder(folder: Path, *, whole: bool = True) -> InspectedModel:
    """`whole` False: the weight files are cut after their headers, so sizes are not compared."""
    config = _read(folder, "config.json")
    names = _weight_files(folder)
    files = [_read_header(folder, name, whole=whole) for name in names]
    return read_model(config, files, revision=_identity(config, names, files))


def inspect_config(path: Path) -> InspectedModel:
    """From a config.json alone: parameters are counted, not read."""
    config = _read(path.parent, path.name)
    return read_model(config, [], revision=_identity(config, [], []))


def _weight_files(folder: Path) -> list[str]:
    if (folder / INDEX).is_file():
        return shard_names(_read(folder, INDEX))
    names = sorted(path.name for path in folder.glob("*.safetensors"))
    if not names:
        found = sorted(path.name for path in folder.iterdir())[:8]
        message = f"no .safetensors file in the model's folder; it holds {', '.join(found)}"
        raise InspectionError("NoSafetensors", message)
    return names


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except FileNotFoundError as error:
        found = sorted(path.name for path in folder.iterdir())[:8] if folder.is_dir() else []
        message = (
            f"there is no {name} in the model's folder; it holds {', '.join(found) or 'nothing'}"
        )
        raise InspectionError("ModelNotFound", message) from error
    except OSError as error:
        raise InspectionError("ModelUnreadable", f"{name}: {error.strerror}") from error


def _read_header(folder: Path, name: str, *, whole: bool) -> FileSummary:
    path = folder / name
    try:
        with path.open("rb") as file:
            length = header_length(name, file.read(LENGTH_BYTES))
            summary = parse_header(name, file.read(length))
        size = path.stat().st_size
    except FileNotFoundError as error:
        message = f"{name} is listed in {INDEX} and is not in the folder"
        raise InspectionError("CheckpointIncomplete", message) from error
    except OSError as error:
        raise InspectionError("ModelUnreadable", f"{name}: {error.strerror}") from error
    if whole and size < summary.file_bytes:
        message = f"{name} has {size} of {summary.file_bytes} bytes; was its download cut off?"
        raise InspectionError("CheckpointIncomplete", message)
    return summary


def _identity(config: bytes, names: list[str], files: list[FileSummary]) -> str:
    """A folder has no commit; what was read of it stands in."""
    digest = hashlib.sha256(config)
    for name, file in zip(names, files, strict=True):
        digest.update(f"{name} {file.file_bytes} {sorted(file.bytes_by_dtype.items())}".encode())
    return f"sha256:{digest.hexdigest()[:16]}"
