"""`pagefleet capacity`: what one replica of a model needs and holds on each GPU product."""

from pathlib import Path
from typing import Any

import click
from rich.table import Table

from pagefleet_memory import NodeGroup
from pagefleet_memory.products import PRODUCTS
from pagefleet_operator.commands.asked import made_for, read_file
from pagefleet_operator.commands.hardware import gpu_groups, gpu_options
from pagefleet_operator.commands.models_at_hand import read_model_of
from pagefleet_operator.commands.output import output_option, print_data, print_table
from pagefleet_operator.commands.planning import plan_for
from pagefleet_operator.commands.what_if import changes_of, what_if_options
from pagefleet_operator.planning.serving_plan import PlanRefusal, ServingPlan

# Heading, key in the JSON form.
_COLUMNS = (
    ("GPU", "product"),
    ("GPUs", "gpusPerReplica"),
    ("TPxPP", "split"),
    ("longest", "maxModelLen"),
    ("KV tokens", "kvTokens"),
    ("full len", "maxFullLengthSequences"),
    ("seqs", "maxNumSeqs"),
    ("tok/s", "predictedDecodeTokensPerSecond"),
    ("ms/step", "predictedStepMilliseconds"),
)
_KEYS = (
    "gpusPerReplica",
    "tensorParallelSize",
    "pipelineParallelSize",
    "maxModelLen",
    "kvTokens",
    "maxFullLengthSequences",
    "maxNumSeqs",
    "predictedDecodeTokensPerSecond",
    "predictedStepMilliseconds",
    "predictedPrefillTokensPerSecond",
)


@click.command()
@click.argument(
    "file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--model", help="Folder, config.json or a name of the catalogue (pagefleet models).")
@click.option("--hub", is_flag=True, help="Read headers from the hub even of a catalogued model.")
@click.option("--all-gpus", is_flag=True, help="Every product of the table; so without --gpu.")
@output_option
@gpu_options
@what_if_options
@click.pass_context
def capacity(
    context: click.Context,
    file: Path | None,
    model: str | None,
    hub: bool,
    all_gpus: bool,
    output: str,
    gpus: tuple[str, ...],
    count: int,
    nodes: int,
    gpu_memory: int | None,
) -> None:
    """Compare GPU products for a model: GPUs of one replica, what it holds, how fast it is."""
    changes = changes_of(context)
    if file is None and model is None:
        raise click.UsageError("name a model with --model, or a FILE with an InferenceDeployment")
    infd = read_file(file, changes) if file else made_for(str(model), changes)
    found_model = read_model_of(infd, model, hub=hub)
    names = gpus if gpus and not all_gpus else tuple(row.label for row in PRODUCTS)
    groups = gpu_groups(names, count=count, nodes=nodes, memory_mib=gpu_memory)
    rows = [_row(group, plan_for(infd, found_model, [group])) for group in groups]
    if output == "table":
        print_table(_table(rows, title=f"{infd.name} on {nodes} x {count} GPUs"))
    else:
        print_data(rows, output)


def _row(group: NodeGroup, found: ServingPlan | PlanRefusal) -> dict[str, Any]:
    """The plan in short, of the same names as in status.plan; or why there is none."""
    product = {"product": group.accelerator.name, "memoryBytes": group.accelerator.memory_bytes}
    if isinstance(found, PlanRefusal):
        return {**product, "refusal": found.to_status()}
    status = found.to_status()
    parts = {**status, **status["chosen"], "gpusPerReplica": status["accelerator"]["perReplica"]}
    return {**product, **{key: parts[key] for key in _KEYS if key in parts}}


def _table(rows: list[dict[str, Any]], *, title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for heading, key in _COLUMNS:
        first = key == "product"
        table.add_column(heading, justify="left" if first else "right", overflow="fold")
    for row in rows:
        table.add_row(*_cells(row), style="dim" if "refusal" in row else None)
    return table


def _cells(row: dict[str, Any]) -> list[str]:
    shown = {**row, "product": row["product"].removeprefix("NVIDIA-")}
    if "refusal" not in row:
        shown["split"] = f"{row['tensorParallelSize']}x{row['pipelineParallelSize']}"
    return [str(shown.get(key, "-")) for _, key in _COLUMNS]
