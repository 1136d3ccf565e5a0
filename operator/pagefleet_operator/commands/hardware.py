"""The accelerators that a plan is made for, as flags name them."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from pagefleet_memory import MemoryModelError, NodeGroup, resolve_product
from pagefleet_operator.planning.inventory import cpu_group, gpu_group
from pagefleet_operator.planning.this_machine import local_groups
from pagefleet_operator.spec import InferenceDeploymentSpec
from pagefleet_operator.spec.quantity import quantity_bytes

F = TypeVar("F", bound=Callable[..., Any])


def gpu_options(command: F) -> F:
    """--gpu, and how many of it there are."""
    for option in reversed(
        (
            click.option(
                "--gpu",
                "gpus",
                multiple=True,
                help="GPU product, as in the label nvidia.com/gpu.product or shorter: H100-80GB. "
                "May be given several times.",
            ),
            click.option(
                "--count", type=click.IntRange(1), default=8, show_default=True, help="GPUs a node."
            ),
            click.option(
                "--nodes", type=click.IntRange(1), default=1, show_default=True, help="Nodes."
            ),
            click.option(
                "--gpu-memory", type=click.IntRange(1), help="MiB of one GPU, if unknown."
            ),
        )
    ):
        command = option(command)
    return command


def gpu_groups(
    names: Sequence[str], *, count: int, nodes: int, memory_mib: int | None
) -> tuple[NodeGroup, ...]:
    """Nodes of each product that is named."""
    return tuple(
        _gpu_group(name, count=count, nodes=nodes, memory_mib=memory_mib) for name in names
    )


def node_of(memory: str, *, nodes: int) -> NodeGroup:
    """CPU nodes of this much memory."""
    try:
        return cpu_group(quantity_bytes(memory), nodes=nodes, bf16=False)
    except ValueError as error:
        raise click.ClickException(f"--node-memory: {error}") from error


def groups_here(spec: InferenceDeploymentSpec) -> tuple[NodeGroup, ...]:
    """What this machine offers."""
    try:
        return local_groups(spec)
    except MemoryModelError as error:
        raise click.ClickException(f"the GPU of this machine: {error}") from error


def _gpu_group(name: str, *, count: int, nodes: int, memory_mib: int | None) -> NodeGroup:
    try:
        # A product that no table knows is planned from its memory, under the name it is given.
        product = name if memory_mib is not None else resolve_product(name)
        return gpu_group(product, gpus=count, nodes=nodes, memory_mib=memory_mib)
    except MemoryModelError as error:
        hint = "" if memory_mib is not None else "; or state nvidia.com/gpu.memory by --gpu-memory"
        raise click.ClickException(f"--gpu {name}: {error}{hint}") from error
