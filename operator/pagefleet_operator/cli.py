"""The command line `pagefleet`: the operator's parser and planner without a cluster."""

import click

from pagefleet_operator.commands.capacity import capacity
from pagefleet_operator.commands.models import models
from pagefleet_operator.commands.plan import plan
from pagefleet_operator.commands.run import run


@click.group()
def main() -> None:
    """Plan a fleet of LLM inference pods, compare GPUs for a model, or run one engine here."""


for command in (plan, capacity, models, run):
    main.add_command(command)

if __name__ == "__main__":
    main()
