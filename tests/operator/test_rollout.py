"""The rollout planner: exact steps first, then whole rollouts simulated with their invariants."""

from dataclasses import replace

import pytest

from pagefleet_operator.fleet.rollout import Revision, Rollout, RolloutLimits, plan_rollout


def rev(plan_hash: str, size: int, serving: int | None = None, **counts: int) -> Revision:
    return Revision(
        plan_hash=plan_hash, size=size, serving=size if serving is None else serving, **counts
    )


def plan(
    current: Revision,
    *others: Revision,
    desired: int,
    room: int = 0,
    surge: int | None = None,
    unavailable: int | None = None,
) -> Rollout:
    limits = RolloutLimits(room=room, max_surge=surge, max_unavailable=unavailable)
    return plan_rollout(current, others, desired=desired, limits=limits)


@pytest.mark.parametrize("size", [0, 1, 3, 7])
def test_without_an_old_plan_the_size_is_the_desired_one_whatever_the_room(size: int) -> None:
    step = plan(rev("new", size), desired=3, room=0)
    assert step.targets == {"new": 3} and not step.running


def test_an_empty_old_workload_is_no_rollout() -> None:
    step = plan(rev("new", 2), rev("old", 0), desired=2)
    assert step.targets == {"new": 2, "old": 0} and not step.running


STEPS = [
    # current, old, desired, room -> new target, old target
    pytest.param(rev("new", 0), rev("old", 3), 3, 1, 1, 3, id="surge: one more starts first"),
    pytest.param(rev("new", 1, 0), rev("old", 3), 3, 0, 1, 3, id="surge took the last room: wait"),
    pytest.param(rev("new", 1, 0), rev("old", 3), 3, 9, 1, 3, id="surge: wait for it to serve"),
    pytest.param(rev("new", 1), rev("old", 3), 3, 9, 1, 2, id="surge: it serves, an old leaves"),
    pytest.param(rev("new", 0), rev("old", 3), 3, 0, 0, 2, id="replace: an old one leaves first"),
    pytest.param(rev("new", 0), rev("old", 1), 1, 0, 0, 0, id="replace one of one"),
    pytest.param(rev("new", 0), rev("old", 2), 3, 1, 1, 2, id="replace: room came, start"),
    pytest.param(rev("new", 3), rev("old", 1), 3, 0, 3, 0, id="the last old one leaves"),
    pytest.param(rev("new", 3, 1), rev("old", 2), 3, 0, 3, 2, id="wait while new ones start"),
    pytest.param(rev("new", 0), rev("old", 3, 0), 3, 1, 1, 0, id="old ones that do not serve go"),
    pytest.param(rev("new", 0), rev("old", 3), 0, 1, 0, 0, id="scaled to nothing"),
]


@pytest.mark.parametrize(("current", "old", "desired", "room", "new_target", "old_target"), STEPS)
def test_one_step(
    current: Revision, old: Revision, desired: int, room: int, new_target: int, old_target: int
) -> None:
    step = plan(current, old, desired=desired, room=room)
    assert step.targets == {"new": new_target, "old": old_target}
    assert step.running


def test_a_new_replica_that_cannot_be_scheduled_makes_an_old_one_give_way() -> None:
    step = plan(rev("new", 1, 0, unschedulable=1), rev("old", 1), desired=1, room=5)
    assert step.targets == {"new": 1, "old": 0}


def test_pinned_surge_zero_replaces_even_with_room() -> None:
    step = plan(rev("new", 0), rev("old", 3), desired=3, room=9, surge=0, unavailable=1)
    assert step.targets == {"new": 0, "old": 2}


def test_pinned_unavailable_zero_waits_for_room() -> None:
    step = plan(rev("new", 0), rev("old", 3), desired=3, room=0, surge=1, unavailable=0)
    assert step.targets == {"new": 0, "old": 3}


def test_a_drain_under_way_is_not_repeated() -> None:
    step = plan(rev("new", 1), rev("old", 3, 2, draining=1), desired=3, room=0)
    assert step.targets == {"new": 1, "old": 2}


def test_a_drain_is_called_back_when_the_new_replica_breaks() -> None:
    step = plan(rev("new", 1, 0), rev("old", 1, 0, draining=1), desired=1, room=3)
    assert step.targets == {"new": 1, "old": 1}


def test_two_old_plans_leave_together_as_the_new_one_grows() -> None:
    step = plan(rev("new", 2), rev("a", 1), rev("b", 1), desired=2, room=1)
    assert step.targets == {"new": 2, "a": 0, "b": 0}


def simulate(desired: int, slots: int, *, broken: bool = False) -> list[tuple[int, int]]:
    """Roll `desired` old replicas on `slots` places; yields (serving, total) after each step."""
    new, old = rev("new", 0), rev("old", desired)
    seen = []
    for _ in range(60):
        room = slots - new.size - old.size
        targets = plan(new, old, desired=desired, room=max(0, room)).targets
        old = rev("old", targets["old"])
        serving = 0 if broken else new.size  # what was started before serves by now
        new = replace(new, size=targets["new"], serving=serving)
        seen.append((new.serving + old.serving, new.size + old.size))
        if new.serving == desired and old.size == 0:
            return seen
    return seen


@pytest.mark.parametrize("desired", [1, 2, 5])
@pytest.mark.parametrize("spare", [0, 1, 3])
def test_every_rollout_ends_and_keeps_serving(desired: int, spare: int) -> None:
    seen = simulate(desired, desired + spare)
    assert seen[-1] == (desired, desired)
    assert max(total for _, total in seen) <= desired + min(spare, 1)
    assert min(serving for serving, _ in seen) >= (desired if spare else desired - 1)


@pytest.mark.parametrize("spare", [0, 1])
def test_a_broken_plan_costs_at_most_one_replica(spare: int) -> None:
    seen = simulate(4, 4 + spare, broken=True)
    assert min(serving for serving, _ in seen) >= (4 if spare else 3)
