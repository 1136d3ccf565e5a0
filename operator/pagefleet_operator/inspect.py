"""The program of the inspection pod: a model's shape as JSON, in the pod's termination message."""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pagefleet_operator.errors import InspectionError, SpecError
from pagefleet_operator.model.folder import inspect_folder
from pagefleet_operator.model.hub import PUBLIC_ENDPOINT, HubModel, inspect_hub
from pagefleet_operator.model.inspected import InspectedModel
from pagefleet_operator.model.source import FolderSource, HubSource, parse_model_uri

# The kubelet cuts a termination message after 4096 bytes.
MOST_MESSAGE_CHARACTERS = 1500


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    answer = _answer(arguments)
    text = json.dumps(answer, separators=(",", ":"))
    print(text)
    _write(Path(arguments.termination_log), text)
    return 1 if "error" in answer else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--uri", help="hf://organization/name or file:///folder")
    source.add_argument("--path", help="folder of the model")
    parser.add_argument("--revision", default="main", help="branch, tag or commit on the hub")
    parser.add_argument(
        "--headers-only", action="store_true", help="the weight files end after their headers"
    )
    parser.add_argument("--termination-log", default="/dev/termination-log")
    return parser


def _answer(arguments: argparse.Namespace) -> dict[str, Any]:
    try:
        model = _inspect(arguments)
    except InspectionError as error:
        return _error(error.reason, error.message)
    except SpecError as error:
        return _error("InvalidSpec", str(error))
    except Exception as error:  # the pod's answer is the only thing that is read
        return _error("InspectionFailed", f"{type(error).__name__}: {error}")
    return {"shape": model.shape.to_summary(), "revision": model.revision}


def _inspect(arguments: argparse.Namespace) -> InspectedModel:
    if arguments.path:
        return inspect_folder(Path(arguments.path), whole=not arguments.headers_only)
    match parse_model_uri(arguments.uri):
        case HubSource(repo):
            return asyncio.run(inspect_hub(hub_model(repo, arguments.revision)))
        case FolderSource(path):
            return inspect_folder(Path(path))
        case _:
            raise SpecError(
                "--uri", arguments.uri, "cannot be read from here: mount it, use --path"
            )


def hub_model(repo: str, revision: str) -> HubModel:
    """With the endpoint and the token that the environment gives."""
    return HubModel(
        repo=repo,
        revision=revision,
        endpoint=os.environ.get("HF_ENDPOINT") or PUBLIC_ENDPOINT,
        token=os.environ.get("HF_TOKEN", ""),
    )


def _error(reason: str, message: str) -> dict[str, Any]:
    return {"error": {"reason": reason, "message": message[:MOST_MESSAGE_CHARACTERS]}}


def _write(path: Path, text: str) -> None:
    """Outside a container there is no such file, and what was printed is enough."""
    if path.exists() or path.parent != Path("/dev"):
        path.write_text(text)


if __name__ == "__main__":
    sys.exit(main())
