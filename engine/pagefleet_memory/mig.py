"""MIG: the slice of a GPU that a product label names, as NVIDIA-A100-SXM4-40GB-MIG-3g.20gb."""

import re
from dataclasses import dataclass

from pagefleet_memory.errors import AcceleratorError

# The profile's name rounds its memory up: 1g.5gb has 4864 MiB, 1g.18gb of an H200 16.5 GiB.
_LEAST_SHARE, _MOST_SHARE = 0.85, 1.02
_MIB_PER_GB = 1024
_LABEL = re.compile(r"^(?P<product>.+)-MIG-(?P<profile>\d+g\.(?P<memory>\d+)gb\S*)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MigSlice:
    """One slice: to a process a small GPU of its own, without links to others."""

    product: str  # label of the whole GPU
    profile: str  # 3g.20gb
    memory_gb: int  # as the profile's name says


def read_mig_label(label: str) -> MigSlice | None:
    """The slice that a label of MIG's single strategy names; None for a whole GPU."""
    match = _LABEL.match(label)
    if match is None:
        return None
    return MigSlice(match["product"], match["profile"], int(match["memory"]))


def check_mig_memory(label: str, part: MigSlice, memory_mib: int | None) -> int:
    """The slice's memory in MiB; refused where the node does not say it, or says another one."""
    most = int(part.memory_gb * _MIB_PER_GB * _MOST_SHARE)
    least = int(part.memory_gb * _MIB_PER_GB * _LEAST_SHARE)
    if memory_mib is not None and least <= memory_mib <= most:
        return memory_mib
    said = "is not stated" if memory_mib is None else f"{memory_mib} MiB contradicts it"
    raise AcceleratorError(
        f"the memory of the MIG slice {label} {said}",
        field="nvidia.com/gpu.memory",
        value=memory_mib,
        hint=f"a slice {part.profile} has {least} to {most} MiB; label the node with the slice's",
    )
