"""What a pod needs beside the accelerator: memory, /dev/shm, and time to start."""

import math

from pagefleet_memory.accelerator import Accelerator
from pagefleet_memory.constants import constant
from pagefleet_memory.limits import EngineLimits
from pagefleet_memory.model_shape import ModelShape


def host_memory_bytes(accelerator: Accelerator, limits: EngineLimits, *, pods: int) -> int:
    """Memory request of one pod; on CPU the container's limit holds everything, swap included."""
    if accelerator.kind == "CPU":
        return accelerator.memory_bytes + limits.swap_space_bytes
    ranks = -(-limits.world_size // pods)
    base = constant("host_base").value + ranks * constant("host_per_rank").value
    return base + limits.swap_space_bytes + shm_bytes(limits, pods=pods)


def shm_bytes(limits: EngineLimits, *, pods: int) -> int:
    """Size of /dev/shm: collectives of the ranks that share a pod pass through it."""
    ranks = -(-limits.world_size // pods)
    if ranks == 1:
        return constant("shm_single").value
    return constant("shm_base").value + ranks * constant("shm_per_rank").value


def startup_seconds(shape: ModelShape, accelerator: Accelerator, limits: EngineLimits) -> int:
    """A generous bound from container start to the first answer, for the start-up probe."""
    reading = shape.weight_bytes(limits.dtype) / constant("load_bytes_per_second").value
    seconds = constant("startup_base_seconds").value + reading
    if accelerator.kind == "GPU" and not limits.enforce_eager:
        seconds += constant("startup_graph_seconds").value
    return math.ceil(seconds)
