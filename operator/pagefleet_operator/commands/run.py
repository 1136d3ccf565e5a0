"""`pagefleet run`: one engine on this machine, with exactly the planned flags."""

import sys
from pathlib import Path

import click

from pagefleet_operator.commands.asked import read_file
from pagefleet_operator.commands.hardware import groups_here
from pagefleet_operator.commands.models_at_hand import local_folder, read_folder
from pagefleet_operator.commands.output import print_plan
from pagefleet_operator.commands.planning import plan_for
from pagefleet_operator.local_run import engine_command, engine_environment, run_engine
from pagefleet_operator.planning.serving_plan import PlanRefusal


@click.command()
@click.option(
    "-f",
    "--filename",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with an InferenceDeployment.",
)
@click.option(
    "--model",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the model on this machine, instead of spec.model.uri.",
)
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(1, 65535), default=8000, show_default=True)
def run(filename: Path, folder: Path | None, host: str, port: int) -> None:
    """Plan for this machine and start one engine with exactly the planned flags."""
    infd = read_file(filename)
    model = folder or local_folder(infd)
    found = plan_for(infd, read_folder(model), groups_here(infd.spec))
    print_plan(infd, found, "table")
    if isinstance(found, PlanRefusal):
        sys.exit(1)
    command = engine_command(found, folder=model, host=host, port=port)
    click.echo("$ " + " ".join(command))
    sys.exit(run_engine(command, engine_environment(found)))
