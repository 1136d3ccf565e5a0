"""The ways to split a model over a node group: TP inside a node, PP inside it or across nodes."""

from dataclasses import dataclass

from pagefleet_memory.engine_split import stage_problem, tensor_sizes
from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.workload import NodeGroup, Pins

_STAGES_IN_A_NODE = (1, 2, 4, 8)
_MOST_NODES = 16  # that one replica spans


@dataclass(frozen=True, slots=True)
class Option:
    """One parallelism on one node group."""

    tensor_parallel_size: int
    pipeline_parallel_size: int
    pods: int

    @property
    def gpus(self) -> int:
        """Accelerators of one replica."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    def describe(self, group: NodeGroup) -> str:
        """The option in words, as it appears among rejected ones."""
        if group.accelerator.kind == "CPU":
            return f"{group.name}: CPU"
        tp, pp = self.tensor_parallel_size, self.pipeline_parallel_size
        return f"{group.name}: {self.gpus}x {group.accelerator.name} (TP={tp}, PP={pp})"


def group_options(shape: ModelShape, group: NodeGroup, pins: Pins) -> tuple[Option, ...]:
    """Valid options of a group: fewest accelerators first, then fewest stages."""
    if group.accelerator.kind == "CPU" or group.accelerator.mig_profile:
        options = [Option(1, 1, 1)]  # a process can use one MIG slice, and none reaches another
    else:
        options = [
            option
            for tp in tensor_sizes(shape, group.accelerators_per_node)
            for option in _stage_options(tp, shape, group)
        ]
    kept = [option for option in options if _allowed(option, pins)]
    return tuple(sorted(kept, key=lambda o: (o.gpus, o.pods, o.pipeline_parallel_size)))


def _stage_options(tp: int, shape: ModelShape, group: NodeGroup) -> list[Option]:
    """Stages that fill part of one node, or whole nodes of equal pods."""
    per_node = group.accelerators_per_node // tp
    most_nodes = min(group.nodes, _MOST_NODES)
    inside = {pp for pp in (*_STAGES_IN_A_NODE, per_node) if pp <= per_node}
    options = [Option(tp, pp, 1) for pp in sorted(inside)]
    options += [Option(tp, per_node * nodes, nodes) for nodes in range(2, most_nodes + 1)]
    return [option for option in options if not stage_problem(shape, option.pipeline_parallel_size)]


def _allowed(option: Option, pins: Pins) -> bool:
    if pins.max_gpus is not None and option.gpus > pins.max_gpus:
        return False
    tensor, stages = pins.tensor_parallel_size, pins.pipeline_parallel_size
    return tensor in (None, option.tensor_parallel_size) and stages in (
        None,
        option.pipeline_parallel_size,
    )
