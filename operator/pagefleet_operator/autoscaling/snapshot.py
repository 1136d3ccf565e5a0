"""FleetSnapshot: everything one decision looks at, as plain values."""

from dataclasses import dataclass
from enum import StrEnum

from pagefleet_operator.autoscaling.sample import EngineSample
from pagefleet_operator.autoscaling.settings import AutoscalingSettings


class PodState(StrEnum):
    """What a pod is to the fleet.

    PENDING has no node yet. STARTING has one and may still become ready. DRAINING serves what it
    has and leaves. FAILED is neither supply nor demand; its replacement is the workload's job.
    """

    PENDING = "pending"
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class PodObservation:
    name: str
    state: PodState
    sample: EngineSample | None = None  # None: this round's scrape brought nothing


@dataclass(frozen=True, slots=True)
class ReplicaCapacity:
    """What one replica can do, from its plan: it counts before the first replica exists."""

    kv_tokens: float
    max_num_seqs: int | None = None  # None: not a limit
    prefill_tokens_per_second: float | None = None  # None: wait for a measurement
    cold_start_seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.kv_tokens <= 0:
            raise ValueError(f"a replica needs a positive KV capacity, got {self.kv_tokens}")


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """`current_replicas` is the size the fleet is driven to: the workload's, less the draining.

    `free_slots` counts further replicas that fit on the nodes now; None: not known, no limit.
    """

    pods: tuple[PodObservation, ...]
    current_replicas: int
    capacity: ReplicaCapacity
    settings: AutoscalingSettings
    free_slots: int | None = None
    rollout_running: bool = False
