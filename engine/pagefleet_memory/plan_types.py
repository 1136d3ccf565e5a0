"""What a plan search returns: the plan, what was rejected, or a refusal."""

from dataclasses import dataclass
from typing import Literal

from pagefleet_memory.accelerator import Accelerator
from pagefleet_memory.ledger import Ledger
from pagefleet_memory.limits import EngineLimits
from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.speed import Speed
from pagefleet_memory.workload import NodeGroup, Pins, Workload

Objective = Literal["MinGPUs", "Throughput", "Latency"]
RejectionReason = Literal["DoesNotFit", "NoAccelerator", "InvalidPin", "NotPreferred"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Settings of one replica, with the ledger that shows they fit."""

    group: str
    accelerator: Accelerator
    limits: EngineLimits
    stages: tuple[Ledger, ...]
    num_kv_blocks: int
    kv_tokens: int
    max_full_length_sequences: float
    device_memory_bytes: int  # CPU: the container's memory limit to set; GPU: memory of the device
    host_memory_bytes: int  # memory request of one pod
    shm_bytes: int
    startup_seconds: int
    gpus_per_replica: int
    pods_per_replica: int  # nodes that one replica spans
    speed: Speed | None = None  # None where the accelerator's own speed is not known
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejection:
    """An option that was not chosen, and why."""

    option: str
    reason: RejectionReason
    message: str
    short_by_bytes: int | None = None  # None where memory was not the reason


@dataclass(frozen=True, slots=True)
class Change:
    """A change of what was asked for that gives a plan, and the whole question after it."""

    message: str
    shape: ModelShape
    workload: Workload
    groups: tuple[NodeGroup, ...]
    pins: Pins


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no plan exists, and the nearest changes that would make one exist."""

    reason: RejectionReason
    message: str
    changes: tuple[Change, ...] = ()

    @property
    def nearest(self) -> tuple[str, ...]:
        """The changes in words."""
        return tuple(change.message for change in self.changes)


@dataclass(frozen=True, slots=True)
class PlanResult:
    """Either a chosen plan or a refusal, and every option looked at."""

    chosen: MemoryPlan | None
    rejected: tuple[Rejection, ...]
    refusal: Refusal | None
