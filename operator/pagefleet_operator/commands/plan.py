"""`pagefleet plan`: how a model would be laid out, without a cluster."""

import sys
from pathlib import Path

import click

from pagefleet_operator.commands.asked import made_for, read_file
from pagefleet_operator.commands.hardware import gpu_groups, gpu_options, groups_here, node_of
from pagefleet_operator.commands.models_at_hand import read_model_of
from pagefleet_operator.commands.output import output_option, print_plan
from pagefleet_operator.commands.planning import plan_for
from pagefleet_operator.commands.what_if import changes_of, what_if_options
from pagefleet_operator.planning.serving_plan import PlanRefusal

_PATH = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("file", required=False, type=_PATH)
@click.option("-f", "--filename", type=_PATH, help="File with an InferenceDeployment, as FILE.")
@click.option(
    "--model",
    help="Folder, config.json or a name of the catalogue (pagefleet models); without FILE the "
    "whole question, else instead of spec.model.uri.",
)
@click.option("--hub", is_flag=True, help="Read headers from the hub even of a catalogued model.")
@output_option
@gpu_options
@click.option("--node-memory", help="Memory of a CPU node, as 16Gi. Default: this machine's.")
@what_if_options
@click.pass_context
def plan(
    context: click.Context,
    file: Path | None,
    filename: Path | None,
    model: str | None,
    hub: bool,
    output: str,
    gpus: tuple[str, ...],
    count: int,
    nodes: int,
    gpu_memory: int | None,
    node_memory: str | None,
) -> None:
    """Show how a model would be laid out: on GPUs that are named, or on this machine.

    Every flag from --max-model-len on sets one field of the spec, for a what-if.
    """
    if file is not None and filename is not None:
        raise click.UsageError("name one file: FILE and -f are the same")
    path = filename or file
    changes = changes_of(context)
    if path is not None:
        infd = read_file(path, changes)
    elif model is not None:
        infd = made_for(model, changes)
    else:
        raise click.UsageError("name a FILE with an InferenceDeployment, or a model with --model")
    found_model = read_model_of(infd, model, hub=hub)
    if gpus:
        groups = gpu_groups(gpus, count=count, nodes=nodes, memory_mib=gpu_memory)
    elif node_memory:
        groups = (node_of(node_memory, nodes=nodes),)
    else:
        groups = groups_here(infd.spec)
    found = plan_for(infd, found_model, groups)
    print_plan(infd, found, output)
    sys.exit(1 if isinstance(found, PlanRefusal) else 0)
