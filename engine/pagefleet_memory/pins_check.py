"""Pins and workload figures that no accelerator could satisfy."""

from collections.abc import Sequence

from pagefleet_memory.demand import Demand
from pagefleet_memory.engine_split import stage_problem, tensor_problem
from pagefleet_memory.units import format_bytes
from pagefleet_memory.workload import NodeGroup, Pins


def invalid_pin(demand: Demand, groups: Sequence[NodeGroup]) -> str | None:
    """What is wrong with the stated settings for this model; None where nothing is."""
    shape, pins = demand.shape, demand.pins
    stated = demand.stated_model_len
    if stated is not None and stated > shape.max_position_embeddings:
        return (
            f"max_model_len {stated} is above the {shape.max_position_embeddings} positions"
            " that the model knows"
        )
    tensor = pins.tensor_parallel_size
    if tensor is not None:
        problem = tensor_problem(shape, tensor)
        if problem:
            return f"tensor_parallel_size {tensor}: {problem}"
    stages = pins.pipeline_parallel_size
    if stages is not None:
        problem = stage_problem(shape, stages)
        if problem:
            return f"pipeline_parallel_size {stages}: {problem}"
    return _invalid_batch(pins) or _invalid_memory(pins, groups)


def _invalid_batch(pins: Pins) -> str | None:
    seqs, batched = pins.max_num_seqs, pins.max_num_batched_tokens
    if seqs is not None and batched is not None and seqs > batched:
        return (
            f"max_num_batched_tokens {batched} is below max_num_seqs {seqs}:"
            " each running request takes one token of a step"
        )
    return None


def _invalid_memory(pins: Pins, groups: Sequence[NodeGroup]) -> str | None:
    """A container cannot get more memory than the largest node has."""
    nodes = [group.accelerator.memory_bytes for group in groups if group.accelerator.kind == "CPU"]
    stated = pins.device_memory_bytes
    if stated is None or not nodes or stated <= max(nodes):
        return None
    return f"memory {format_bytes(stated)} is above the largest node's {format_bytes(max(nodes))}"


def matches_products(group: NodeGroup, pins: Pins) -> bool:
    """True where the group's product is among the named ones; a part of its label names it."""
    if not pins.products:
        return True
    label = f"-{group.accelerator.name}-".lower()
    return any(f"-{product}-".lower() in label for product in pins.products)
