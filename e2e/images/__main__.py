"""python -m e2e.images build|push|list|lock"""

import argparse
import json
import subprocess
import sys
from dataclasses import asdict

from e2e.cluster.access import Images
from e2e.cluster.errors import ClusterError
from e2e.cluster.layout import REGISTRY
from e2e.images.lock import write_lock
from e2e.images.pipeline import build_all, build_and_push, image_names
from e2e.images.recipe import read_recipe
from e2e.model import ModelError, model_folder


def main() -> int:
    """Run one command; a failure is one message and exit status 1."""
    arguments = _parser().parse_args()
    try:
        arguments.command(arguments)
    except (ClusterError, ModelError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        return int(error.returncode)
    return 0


def build(_: argparse.Namespace) -> None:
    for name, size in build_all().items():
        print(f"{size / 1e6:8.0f} MB  {name}")


def push(arguments: argparse.Namespace) -> None:
    _show(build_and_push(arguments.registry), as_json=arguments.json)


def list_names(arguments: argparse.Namespace) -> None:
    names = image_names(arguments.registry, read_recipe(model_folder()))
    _show(names, as_json=arguments.json)


def lock(_: argparse.Namespace) -> None:
    print(write_lock())


def _show(images: Images, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(images)))
        return
    for name, image in asdict(images).items():
        print(f"PAGEFLEET_IMAGE_{name.upper()}={image}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e.images")
    commands = parser.add_subparsers(required=True)
    for command, name, text in (
        (build, "build", "build every image that is missing here"),
        (push, "push", "build, then send what the registry lacks"),
        (list_names, "list", "the names that a cluster pulls the present code's images by"),
        (lock, "lock", "write requirements.lock from pyproject.toml"),
    ):
        added = commands.add_parser(name, help=text)
        added.set_defaults(command=command)
        added.add_argument("--registry", default=REGISTRY, help="host:port (default: %(default)s)")
        added.add_argument("--json", action="store_true", help="print JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
