"""AutoscalingSettings: bounds, targets and HPA-shaped behavior, with the defaults of the law."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

# A size is given up only if the fleet would still be this far below its scale-up target without
# it: 0.75 up, 0.60 down. The band between the two is the hysteresis.
SCALE_DOWN_TARGET_SHARE = 0.8


class AutoscalingMode(StrEnum):
    ACTIVE = "Active"
    ADVISORY = "Advisory"


class PolicyType(StrEnum):
    PODS = "Pods"
    PERCENT = "Percent"


class SelectPolicy(StrEnum):
    """Which of several policies counts: Max allows the largest change, Min the smallest."""

    MAX = "Max"
    MIN = "Min"
    DISABLED = "Disabled"


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    type: PolicyType
    value: int
    period_seconds: float


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """One direction. Without policies, only the stabilization window limits a change."""

    stabilization_window_seconds: float
    policies: tuple[ScalingPolicy, ...]
    select_policy: SelectPolicy = SelectPolicy.MAX


def default_scale_up() -> ScalingRules:
    return ScalingRules(
        stabilization_window_seconds=0,
        policies=(
            ScalingPolicy(PolicyType.PERCENT, 100, 60),
            ScalingPolicy(PolicyType.PODS, 4, 60),
        ),
    )


def default_scale_down() -> ScalingRules:
    return ScalingRules(
        stabilization_window_seconds=600,
        policies=(
            ScalingPolicy(PolicyType.PERCENT, 25, 60),
            ScalingPolicy(PolicyType.PODS, 1, 60),
        ),
    )


@dataclass(frozen=True, slots=True)
class ScalingBehavior:
    scale_up: ScalingRules = field(default_factory=default_scale_up)
    scale_down: ScalingRules = field(default_factory=default_scale_down)


@dataclass(frozen=True, slots=True)
class AutoscalingTargets:
    """Shares are of one replica, above 0 and up to 1. A latency of None is no objective."""

    kv_utilization: float = 0.75
    prefill_utilization: float = 0.60
    ttft_p90_seconds: float | None = None
    itl_p90_seconds: float | None = None

    def for_scale_down(self) -> Self:
        return type(self)(
            kv_utilization=self.kv_utilization * SCALE_DOWN_TARGET_SHARE,
            prefill_utilization=self.prefill_utilization * SCALE_DOWN_TARGET_SHARE,
            ttft_p90_seconds=self.ttft_p90_seconds,
            itl_p90_seconds=self.itl_p90_seconds,
        )


@dataclass(frozen=True, slots=True)
class AutoscalingSettings:
    min_replicas: int
    max_replicas: int
    targets: AutoscalingTargets = field(default_factory=AutoscalingTargets)
    behavior: ScalingBehavior = field(default_factory=ScalingBehavior)
    mode: AutoscalingMode = AutoscalingMode.ACTIVE
    max_pending_replicas: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.min_replicas <= self.max_replicas:
            raise ValueError(
                f"autoscaling needs 1 <= minReplicas <= maxReplicas, got minReplicas="
                f"{self.min_replicas} and maxReplicas={self.max_replicas}"
            )
