"""`python -m pagefleet_engine.download`: fetch a model from a hub into a folder, all or nothing."""

import argparse
import errno
import json
import logging
import os
import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path

from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from pagefleet_engine.errors import EngineError
from pagefleet_engine.termination import write_record

# What the engine reads. Other weight formats and subfolders hold copies of the same model.
WANTED = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.tiktoken")
UNWANTED = ("*/*", "consolidated*")
MARKER = ".pagefleet-complete.json"
CONNECT_SECONDS = 30.0

log = logging.getLogger(__name__)


class DownloadError(EngineError):
    """A download that cannot be completed; `reason` goes to the termination record."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m pagefleet_engine.download", description=__doc__
    )
    parser.add_argument("--repo", required=True, help="org/name")
    parser.add_argument("--revision", default="main", help="branch, tag or commit")
    parser.add_argument("--dest", required=True, type=Path, help="folder to fill")
    parser.add_argument("--termination-log", help="file for the record of a failure")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        commit = download(arguments.repo, arguments.revision, arguments.dest)
    except DownloadError as error:
        log.error("%s: %s", error.reason, error)
        write_record(arguments.termination_log, reason=error.reason, message=str(error))
        return 1
    log.info("%s at %s is complete in %s", arguments.repo, commit, arguments.dest)
    return 0


def download(repo: str, revision: str, destination: Path) -> str:
    """Fill the folder and return the commit; files already complete are not fetched again.

    Each file appears in one move when it is whole, and the marker when all of them are.
    """
    where = f"{repo} at revision {revision}"
    try:
        return _download(repo, revision, destination)
    except DownloadError:
        raise
    except Exception as error:  # the client raises its own tree, httpx's and OSError
        raise _explain(error, where) from error


def _download(repo: str, revision: str, destination: Path) -> str:
    endpoint, token = os.environ.get("HF_ENDPOINT"), os.environ.get("HF_TOKEN")
    info = HfApi(endpoint=endpoint, token=token or False).model_info(
        repo, revision=revision, timeout=CONNECT_SECONDS
    )
    commit = info.sha or revision
    if _is_complete(destination, repo, commit):
        return commit
    names = choose_files(sibling.rfilename for sibling in info.siblings or ())
    destination.mkdir(parents=True, exist_ok=True)
    for name in names:
        log.info("fetching %s", name)
        hf_hub_download(
            repo,
            name,
            revision=commit,
            local_dir=destination,
            endpoint=endpoint,
            token=token or False,
            etag_timeout=CONNECT_SECONDS,
        )
    _mark_complete(destination, repo, commit)
    return commit


def choose_files(names: Iterable[str]) -> list[str]:
    """The files of a repository that the engine reads, the small ones first."""
    chosen = [
        name
        for name in names
        if any(fnmatch(name, pattern) for pattern in WANTED)
        and not any(fnmatch(name, pattern) for pattern in UNWANTED)
    ]
    for suffix, what in ((".safetensors", "safetensors weights"), ("config.json", "config.json")):
        if not any(name.endswith(suffix) for name in chosen):
            raise DownloadError("ModelUnsupported", f"the repository has no {what}")
    return sorted(chosen, key=lambda name: (name.endswith(".safetensors"), name))


def _is_complete(destination: Path, repo: str, commit: str) -> bool:
    try:
        marker = json.loads((destination / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(marker == {"repo": repo, "commit": commit})


def _mark_complete(destination: Path, repo: str, commit: str) -> None:
    temporary = destination / f"{MARKER}.tmp"
    temporary.write_text(json.dumps({"repo": repo, "commit": commit}), encoding="utf-8")
    temporary.replace(destination / MARKER)


def _explain(error: Exception, where: str) -> DownloadError:
    """The error in the words of someone who has to repair it."""
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
    if isinstance(error, GatedRepoError) or status in (401, 403):
        hint = "it is private or gated, or does not exist; a token with access is needed"
        return DownloadError("ModelAccessDenied", f"{where}: the hub refuses access; {hint}")
    if isinstance(error, RevisionNotFoundError):
        return DownloadError("RevisionNotFound", f"{where}: the hub has no such revision")
    if isinstance(error, RepositoryNotFoundError) or status == 404:
        return DownloadError("ModelNotFound", f"{where}: the hub has no such model")
    if isinstance(error, HFValidationError):
        return DownloadError("ModelNotFound", f"{where}: not a valid name: {error}")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DownloadError("DiskFull", f"{where}: no space left on the volume: {error}")
    return DownloadError(
        "DownloadInterrupted", f"{where}: broken off: {type(error).__name__}: {error}"
    )


if __name__ == "__main__":
    sys.exit(main())
