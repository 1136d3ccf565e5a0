"""The next step of a rollout, from what is there now; stateless and pure.

Every plan has its own workload. The planner says how many replicas each should go to: growth is
carried out at once, shrinking goes through a drain, so a target below the size means "drain".

    surge    room for one more: start a new replica first, drain an old one when it serves
    replace  no room: drain an old replica first, start the new one in its place

What serves never falls below the wanted number, except by one replica (or spec's maxUnavailable)
where there is no room. A new plan that never becomes ready therefore stops the rollout.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One plan's workload: `size` is what it is set to, the rest counts its replicas."""

    plan_hash: str
    size: int
    serving: int = 0
    draining: int = 0
    unschedulable: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutLimits:
    """From the spec; None lets the planner choose by room. `room`: replicas that fit now."""

    room: int
    max_surge: int | None = None
    max_unavailable: int | None = None


@dataclass(frozen=True, slots=True)
class Rollout:
    """Size that each plan's workload should go to; `message` is empty when nothing is replaced."""

    targets: Mapping[str, int]
    message: str = ""

    @property
    def running(self) -> bool:
        return bool(self.message)


def plan_rollout(
    current: Revision, others: Sequence[Revision], *, desired: int, limits: RolloutLimits
) -> Rollout:
    old = [revision for revision in others if revision.size > 0]
    if not old:
        targets = {revision.plan_hash: 0 for revision in others}
        return Rollout({**targets, current.plan_hash: desired})
    growth = _growth(current, old, desired=desired, limits=limits)
    replacing = growth == 0 and _is_blocked(current, old, desired=desired, limits=limits)
    keep = _keep_serving(current, old, floor=_floor(desired, limits, replacing=replacing))
    targets = {revision.plan_hash: 0 for revision in others}
    targets.update(keep)
    targets[current.plan_hash] = min(desired, current.size + growth)
    return Rollout(targets, _message(current, old, desired=desired, replacing=replacing))


def _growth(
    current: Revision, old: Sequence[Revision], *, desired: int, limits: RolloutLimits
) -> int:
    if current.unschedulable:
        return 0
    surge = 1 if limits.max_surge is None else limits.max_surge
    total = current.size + sum(revision.size for revision in old)
    return max(0, min(desired - current.size, desired + surge - total, limits.room))


def _is_blocked(
    current: Revision, old: Sequence[Revision], *, desired: int, limits: RolloutLimits
) -> bool:
    """Whether only an old replica's leaving can make place for a new one.

    A surge under way (more replicas than desired) is waited for, unless it found no node.
    """
    if current.unschedulable:
        return True
    total = current.size + sum(revision.size for revision in old)
    no_room = limits.room == 0 or limits.max_surge == 0
    return current.size < desired and total <= desired and no_room


def _floor(desired: int, limits: RolloutLimits, *, replacing: bool) -> int:
    if limits.max_unavailable is not None:
        return max(0, desired - limits.max_unavailable)
    return max(0, desired - 1) if replacing else desired


def _keep_serving(current: Revision, old: Sequence[Revision], *, floor: int) -> dict[str, int]:
    """Old replicas to keep: as many as the floor asks beyond the current ones.

    Those that already serve are kept first; a drain is called back only when they are too few.
    Old replicas that do not serve are no loss.
    """
    missing = max(0, floor - current.serving)
    keep: dict[str, int] = {}
    for revision in old:
        keep[revision.plan_hash] = min(revision.serving, missing)
        missing -= keep[revision.plan_hash]
    for revision in old:
        called_back = min(revision.draining, missing)
        keep[revision.plan_hash] += called_back
        missing -= called_back
    return keep


def _message(current: Revision, old: Sequence[Revision], *, desired: int, replacing: bool) -> str:
    left = sum(revision.size for revision in old)
    how = (
        "no room for another replica, so each old one is drained before its successor starts"
        if replacing
        else "each old replica is drained once its successor serves"
    )
    return (
        f"plan {current.plan_hash}: {current.serving} of {desired} replicas serve, "
        f"{left} of earlier plans left; {how}"
    )
