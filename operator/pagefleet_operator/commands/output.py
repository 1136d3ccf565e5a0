"""How a command prints: a table for a reader, JSON or YAML for a program."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click
import yaml
from rich.console import Console, RenderableType

from pagefleet_operator.planning.plan_table import plan_table
from pagefleet_operator.planning.serving_plan import PlanRefusal, ServingPlan
from pagefleet_operator.spec import InferenceDeployment

F = TypeVar("F", bound=Callable[..., Any])
_WIDTH = 100


def output_option(command: F) -> F:
    """-o table, json or yaml."""
    kinds = click.Choice(["table", "json", "yaml"])
    return click.option("-o", "--output", type=kinds, default="table", show_default=True)(command)


def print_plan(infd: InferenceDeployment, found: ServingPlan | PlanRefusal, output: str) -> None:
    """status.plan, or status.refusal under `refusal`."""
    if output != "table":
        refused = isinstance(found, PlanRefusal)
        print_data({"refusal": found.to_status()} if refused else found.to_status(), output)
    elif isinstance(found, PlanRefusal):
        click.echo("\n".join(_refusal_lines(infd, found)))
    else:
        print_table(plan_table(found.to_status(), title=f"{infd.name}: {infd.spec.model.uri}"))


def print_data(body: Any, output: str) -> None:
    if output == "json":
        click.echo(json.dumps(body, indent=2))
    else:
        click.echo(yaml.safe_dump(body, sort_keys=False), nl=False)


def print_table(table: RenderableType) -> None:
    console = Console(width=_WIDTH)
    with console.capture() as capture:
        console.print(table)
    click.echo(capture.get(), nl=False)


def _refusal_lines(infd: InferenceDeployment, refusal: PlanRefusal) -> list[str]:
    status = refusal.to_status()
    lines = [f"{infd.name}: no plan ({refusal.reason}): {refusal.message}"]
    return lines + [f"  {entry['option']}: {entry['message']}" for entry in status["rejected"]]
