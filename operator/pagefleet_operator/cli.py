"""The command line: `pagefleet plan` and `pagefleet run`, on the operator's parser and planner."""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import yaml
from rich.console import Console

from pagefleet_memory import MemoryModelError, NodeGroup
from pagefleet_operator.errors import InspectionError, PagefleetError, SpecError
from pagefleet_operator.inspect import hub_model
from pagefleet_operator.local_run import engine_command, engine_environment, run_engine
from pagefleet_operator.model.folder import inspect_folder
from pagefleet_operator.model.hub import inspect_hub
from pagefleet_operator.model.inspected import InspectedModel
from pagefleet_operator.model.source import FolderSource, HubSource, parse_model_uri
from pagefleet_operator.planning.images import Images
from pagefleet_operator.planning.inventory import cpu_group, gpu_group
from pagefleet_operator.planning.plan_table import plan_table
from pagefleet_operator.planning.serving_plan import (
    NO_ACCELERATOR,
    PlanRefusal,
    ServingPlan,
    plan_on_groups,
)
from pagefleet_operator.planning.this_machine import local_groups
from pagefleet_operator.spec import KIND, InferenceDeployment
from pagefleet_operator.spec.quantity import quantity_bytes

_FILE = click.option(
    "-f",
    "--filename",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with an InferenceDeployment.",
)
_MODEL = click.option(
    "--model",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the model on this machine, instead of spec.model.uri.",
)


@click.group()
def main() -> None:
    """Plan a fleet of LLM inference pods, or run one engine of it here."""


@main.command()
@_FILE
@_MODEL
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table")
@click.option("--gpu", help="GPU product, as in the label nvidia.com/gpu.product.")
@click.option("--count", type=click.IntRange(1), default=8, show_default=True, help="GPUs a node.")
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True, help="Nodes.")
@click.option("--gpu-memory", type=click.IntRange(1), help="MiB of one GPU, if unknown.")
@click.option("--node-memory", help="Memory of a CPU node, as 16Gi. Default: this machine's.")
def plan(
    filename: Path,
    folder: Path | None,
    output: str,
    gpu: str | None,
    count: int,
    nodes: int,
    gpu_memory: int | None,
    node_memory: str | None,
) -> None:
    """Show how a model would be laid out: on GPUs that are named, or on this machine."""
    infd = _read(filename)
    if gpu:
        groups: Sequence[NodeGroup] = [
            _checked_gpu(gpu, count=count, nodes=nodes, memory_mib=gpu_memory)
        ]
    elif node_memory:
        groups = [cpu_group(_memory(node_memory), nodes=nodes, bf16=False)]
    else:
        groups = local_groups(infd.spec)
    found = _plan(infd, _inspect(infd, folder), groups)
    click.echo(_render(infd, found, output), nl=False)
    sys.exit(1 if isinstance(found, PlanRefusal) else 0)


@main.command()
@_FILE
@_MODEL
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(1, 65535), default=8000, show_default=True)
def run(filename: Path, folder: Path | None, host: str, port: int) -> None:
    """Plan for this machine and start one engine with exactly the planned flags."""
    infd = _read(filename)
    model = folder or _local_folder(infd)
    found = _plan(infd, _inspect(infd, model), local_groups(infd.spec))
    click.echo(_render(infd, found, "table"), nl=False)
    if isinstance(found, PlanRefusal):
        sys.exit(1)
    command = engine_command(found, folder=model, host=host, port=port)
    click.echo("$ " + " ".join(command))
    sys.exit(run_engine(command, engine_environment(found)))


def _read(filename: Path) -> InferenceDeployment:
    """The first InferenceDeployment of the file."""
    try:
        documents = list(yaml.safe_load_all(filename.read_text()))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{filename} is not YAML: {error}") from error
    for document in documents:
        if isinstance(document, dict) and document.get("kind") == KIND:
            return _parse(document)
    raise click.ClickException(f"{filename} holds no {KIND}")


def _parse(document: dict[str, Any]) -> InferenceDeployment:
    try:
        return InferenceDeployment.parse(document, local=True)
    except SpecError as error:
        raise click.ClickException(str(error)) from error


def _local_folder(infd: InferenceDeployment) -> Path:
    source = parse_model_uri(infd.spec.model.uri)
    if isinstance(source, FolderSource):
        return Path(source.path)
    raise click.ClickException(
        f"spec.model.uri: {infd.spec.model.uri} is no folder of this machine; "
        "name one with --model FOLDER"
    )


def _inspect(infd: InferenceDeployment, folder: Path | None) -> InspectedModel:
    model = infd.spec.model
    source = parse_model_uri(model.uri)
    try:
        if folder is None and isinstance(source, HubSource):
            return asyncio.run(inspect_hub(hub_model(source.repo, model.revision or "main")))
        return inspect_folder(folder or _local_folder(infd))
    except InspectionError as error:
        raise click.ClickException(f"{error.reason}: {error.message}") from error


def _checked_gpu(product: str, *, count: int, nodes: int, memory_mib: int | None) -> NodeGroup:
    try:
        return gpu_group(product, gpus=count, nodes=nodes, memory_mib=memory_mib)
    except MemoryModelError as error:
        raise click.ClickException(f"--gpu {product}: {error}") from error


def _memory(text: str) -> int:
    try:
        return quantity_bytes(text)
    except ValueError as error:
        raise click.ClickException(f"--node-memory: {error}") from error


def _plan(
    infd: InferenceDeployment, model: InspectedModel, groups: Sequence[NodeGroup]
) -> ServingPlan | PlanRefusal:
    if not groups:
        message = "this machine has no NVIDIA GPU; name one with --gpu to plan for it, or set "
        return PlanRefusal(NO_ACCELERATOR, message + "spec.hardware.accelerator to CPU")
    try:
        return plan_on_groups(infd, model.shape, model.revision, groups, Images.from_env({}))
    except PagefleetError as error:
        raise click.ClickException(str(error)) from error


def _render(infd: InferenceDeployment, found: ServingPlan | PlanRefusal, output: str) -> str:
    if isinstance(found, PlanRefusal):
        body: dict[str, Any] = {"refusal": found.to_status()}
    else:
        body = found.to_status()
    if output == "json":
        return json.dumps(body, indent=2) + "\n"
    if output == "yaml":
        return yaml.safe_dump(body, sort_keys=False)
    return _table(infd, found, body)


def _table(
    infd: InferenceDeployment, found: ServingPlan | PlanRefusal, body: dict[str, Any]
) -> str:
    if isinstance(found, PlanRefusal):
        lines = [f"{infd.name}: no plan ({found.reason}): {found.message}"]
        lines += [
            f"  {entry['option']}: {entry['message']}" for entry in body["refusal"]["rejected"]
        ]
        return "\n".join(lines) + "\n"
    console = Console(width=100)
    with console.capture() as capture:
        console.print(plan_table(body, title=f"{infd.name}: {infd.spec.model.uri}"))
    return capture.get()


if __name__ == "__main__":
    main()
