"""From recommendations to a size: stabilization windows, scale policies, bounds, capacity."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from pagefleet_operator.autoscaling.settings import (
    AutoscalingSettings,
    PolicyType,
    ScalingPolicy,
    ScalingRules,
    SelectPolicy,
)
from pagefleet_operator.autoscaling.state import Recommendation, ReplicaCount


class Limit(StrEnum):
    """What kept the size from following the demand."""

    NONE = "none"
    STABILIZED = "stabilized"
    SCALE_UP_POLICY = "scaleUpPolicy"
    SCALE_DOWN_POLICY = "scaleDownPolicy"
    MIN = "min"
    MAX = "max"
    CAPACITY = "capacity"


@dataclass(frozen=True, slots=True)
class Size:
    replicas: int
    limit: Limit


def remember_recommendation(
    earlier: Iterable[Recommendation], newest: Recommendation, settings: AutoscalingSettings
) -> tuple[Recommendation, ...]:
    """Keep what the longer window still needs; the same moment counts once."""
    behavior = settings.behavior
    window = max(
        behavior.scale_up.stabilization_window_seconds,
        behavior.scale_down.stabilization_window_seconds,
    )
    kept = [entry for entry in earlier if newest.at - window <= entry.at < newest.at]
    return (*kept, newest)


def stabilize(
    recommendations: Iterable[Recommendation],
    settings: AutoscalingSettings,
    *,
    current: int,
    now: float,
) -> Size:
    """Grow to the least that the up-window wanted; shrink to the most the down-window wanted."""
    entries = list(recommendations)
    behavior = settings.behavior
    up_window = behavior.scale_up.stabilization_window_seconds
    down_window = behavior.scale_down.stabilization_window_seconds
    up = min(entry.up for entry in entries if entry.at >= now - up_window)
    down = max(entry.down for entry in entries if entry.at >= now - down_window)
    if up > current:
        return Size(up, Limit.NONE)
    if down < current:
        return Size(down, Limit.NONE)
    newest = entries[-1]
    held = newest.up > current or newest.down < current
    return Size(current, Limit.STABILIZED if held else Limit.NONE)


def apply_policies(
    wanted: int,
    settings: AutoscalingSettings,
    counts: Iterable[ReplicaCount],
    *,
    current: int,
    now: float,
) -> Size:
    """Limit the change against the smallest, or largest, size of each policy's period."""
    counts = list(counts)
    behavior = settings.behavior
    if wanted > current:
        highest = _limit_up(behavior.scale_up, counts, current=current, now=now)
        if wanted > highest:
            return Size(max(current, int(highest)), Limit.SCALE_UP_POLICY)
    if wanted < current:
        lowest = _limit_down(behavior.scale_down, counts, current=current, now=now)
        if wanted < lowest:
            return Size(min(current, int(lowest)), Limit.SCALE_DOWN_POLICY)
    return Size(wanted, Limit.NONE)


def clamp(
    wanted: int, settings: AutoscalingSettings, *, current: int, placeable: int | None
) -> Size:
    """Keep to the bounds; room on the nodes limits growth only, and never the lower bound.

    A pod that cannot be placed therefore never stands in the way of shrinking.
    """
    limit = Limit.NONE
    if placeable is not None and wanted > max(current, placeable):
        wanted, limit = max(current, placeable), Limit.CAPACITY
    if wanted < settings.min_replicas:
        return Size(settings.min_replicas, Limit.MIN)
    if wanted > settings.max_replicas:
        return Size(settings.max_replicas, Limit.MAX)
    return Size(wanted, limit)


def _limit_up(
    rules: ScalingRules, counts: list[ReplicaCount], *, current: int, now: float
) -> float:
    def highest(policy: ScalingPolicy) -> float:
        start = min(_sizes_in_period(counts, policy, current=current, now=now))
        if policy.type is PolicyType.PODS:
            return start + policy.value
        return math.ceil(start * (1 + policy.value / 100))

    return _select(rules, highest, widest=max, narrowest=min, none=current, unlimited=math.inf)


def _limit_down(
    rules: ScalingRules, counts: list[ReplicaCount], *, current: int, now: float
) -> float:
    def lowest(policy: ScalingPolicy) -> float:
        start = max(_sizes_in_period(counts, policy, current=current, now=now))
        if policy.type is PolicyType.PODS:
            return start - policy.value
        return math.floor(start * (1 - policy.value / 100))

    return _select(rules, lowest, widest=min, narrowest=max, none=current, unlimited=-math.inf)


def _select(
    rules: ScalingRules,
    limit: Callable[[ScalingPolicy], float],
    *,
    widest: Callable[[Iterable[float]], float],
    narrowest: Callable[[Iterable[float]], float],
    none: float,
    unlimited: float,
) -> float:
    if rules.select_policy is SelectPolicy.DISABLED:
        return none
    limits = [limit(policy) for policy in rules.policies]
    if not limits:
        return unlimited
    return widest(limits) if rules.select_policy is SelectPolicy.MAX else narrowest(limits)


def _sizes_in_period(
    counts: list[ReplicaCount], policy: ScalingPolicy, *, current: int, now: float
) -> list[int]:
    """The size the period began with, every one observed since, and the present one."""
    start = now - policy.period_seconds
    before = [count.replicas for count in counts if count.at <= start]
    return [*before[-1:], *(count.replicas for count in counts if count.at > start), current]
