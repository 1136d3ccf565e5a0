"""Drains: the order of victims, calling back, when a replica may stop, and whole scale-downs."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pagefleet_operator.fleet.drain import EngineLoad, choose_victims, may_stop, size_after
from pagefleet_operator.fleet.drainer import Drainer
from pagefleet_operator.fleet.replicas import DELETION_COST, DRAINING_SINCE, Replica, Workload
from pagefleet_operator.kube.resources import Manifest
from pagefleet_operator.manifests.names import DRAINING_LABEL


def replica(name: str, *, ready: bool = True, created: str = "2026-01-01", **more: Any) -> Replica:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns"}}
    return Replica(
        pod=pod, name=name, plan_hash="p", address="", created=created, ready=ready, **more
    )


def names(replicas: Sequence[Replica]) -> list[str]:
    return [replica.name for replica in replicas]


def victims(*replicas: Replica, target: int, size: int | None = None, **tokens: float) -> list[str]:
    load = {name: EngineLoad(requests=1, kv_tokens=value) for name, value in tokens.items()}
    size = len(replicas) if size is None else size
    return names(choose_victims(replicas, target=target, size=size, load=load).victims)


def test_those_that_do_not_serve_leave_first() -> None:
    fleet = [replica("a"), replica("b", ready=False), replica("c")]
    assert victims(*fleet, target=2) == ["b"]


def test_then_those_already_draining() -> None:
    fleet = [replica("a"), replica("b", draining_since=1.0), replica("c")]
    assert victims(*fleet, target=2, a=0, b=900, c=0) == ["b"]


def test_then_the_fewest_tokens_in_the_cache() -> None:
    fleet = [replica("a"), replica("b"), replica("c")]
    assert victims(*fleet, target=1, a=500, b=20, c=100) == ["b", "c"]


def test_then_the_newest() -> None:
    fleet = [replica("a", created="2026-01-03"), replica("b", created="2026-01-09")]
    assert victims(*fleet, target=1) == ["b"]


def test_a_group_of_pods_gives_up_its_highest_index_whatever_it_runs() -> None:
    fleet = [replica("g-0", ordinal=0), replica("g-1", ordinal=1, draining_since=2.0)]
    fleet.append(replica("g-2", ordinal=2))
    assert victims(*fleet, target=2) == ["g-2"]


def test_replicas_that_do_not_exist_yet_leave_before_any_pod() -> None:
    assert victims(replica("a"), replica("b"), target=2, size=5) == []


def test_demand_that_returns_calls_a_drain_back() -> None:
    fleet = [replica("a"), replica("b", draining_since=1.0)]
    choice = choose_victims(fleet, target=2, size=2, load={})
    assert names(choice.called_back) == ["b"] and choice.victims == ()


def test_a_released_replica_that_is_about_to_go_is_not_called_back_nor_counted_twice() -> None:
    fleet = [replica("a"), replica("b"), replica("c", draining_since=1.0, released=True)]
    settled = choose_victims(fleet, target=2, size=2, load={})
    assert names(settled.victims) == ["c"] and settled.called_back == ()
    assert size_after(1, replicas=3, target=2, size=2) == 2
    further = choose_victims(fleet, target=1, size=2, load={})
    assert names(further.victims)[0] == "c" and len(further.victims) == 2
    assert size_after(1, replicas=3, target=1, size=2) == 2


def test_a_released_replica_that_survived_serves_again() -> None:
    fleet = [replica("a"), replica("b", draining_since=1.0, released=True)]
    choice = choose_victims(fleet, target=2, size=2, load={})
    assert names(choice.called_back) == ["b"]


STOPS = [
    (replica("a", ready=False), None, True),
    (replica("a"), EngineLoad(0), False),
    (replica("a", draining_since=100.0), EngineLoad(0), True),
    (replica("a", draining_since=100.0), EngineLoad(3), False),
    (replica("a", draining_since=100.0), None, False),
    (replica("a", draining_since=-200.0), EngineLoad(3), True),
    (replica("a", draining_since=-200.0), None, True),
]


@pytest.mark.parametrize(("victim", "load", "stops"), STOPS)
def test_when_a_replica_may_stop(victim: Replica, load: EngineLoad | None, stops: bool) -> None:
    assert may_stop(victim, load, timeout_seconds=300.0, now=110.0) is stops


class FakePods:
    """Keeps the patched metadata of each pod."""

    def __init__(self) -> None:
        self.labels: dict[str, dict[str, Any]] = {}
        self.annotations: dict[str, dict[str, Any]] = {}

    async def patch(self, live: Manifest, patch: Mapping[str, Any]) -> Manifest:
        name = live["metadata"]["name"]
        self.labels.setdefault(name, {}).update(patch["metadata"].get("labels", {}))
        self.annotations.setdefault(name, {}).update(patch["metadata"].get("annotations", {}))
        return live


class FakeEngines:
    def __init__(self, **requests: int) -> None:
        self.requests = requests
        self.calls: list[str] = []

    async def drain(self, replica: Replica) -> EngineLoad | None:
        self.calls.append(f"drain {replica.name}")
        return EngineLoad(self.requests.get(replica.name, 0))

    async def cancel_drain(self, replica: Replica) -> bool:
        self.calls.append(f"cancel {replica.name}")
        return True

    async def loads(self, replicas: Sequence[Replica]) -> Mapping[str, EngineLoad]:
        return {r.name: EngineLoad(self.requests.get(r.name, 0)) for r in replicas}


def workload(*replicas: Replica, size: int | None = None) -> Workload:
    return Workload(
        body={}, plan_hash="p", size=len(replicas) if size is None else size, replicas=replicas
    )


async def shrink(engines: FakeEngines, pods: FakePods, fleet: Workload, target: int) -> int:
    drainer = Drainer(pods, engines, now=lambda: 1000.0)
    return await drainer.shrink(fleet, target, timeout_seconds=300.0)


async def test_a_victim_that_serves_is_marked_and_asked_before_anything_shrinks() -> None:
    engines, pods = FakeEngines(a=4, b=1), FakePods()
    size = await shrink(engines, pods, workload(replica("a"), replica("b")), 1)
    assert size == 2
    assert engines.calls == ["drain b"]
    assert pods.labels == {"b": {DRAINING_LABEL: "true"}}
    assert pods.annotations == {"b": {DRAINING_SINCE: "1000"}}


async def test_a_drained_victim_becomes_the_cheapest_to_delete_and_the_size_falls() -> None:
    engines, pods = FakeEngines(a=4), FakePods()
    fleet = workload(replica("a"), replica("b", draining_since=990.0))
    assert await shrink(engines, pods, fleet, 1) == 1
    assert pods.annotations == {"b": {DELETION_COST: "-1000"}}


async def test_a_busy_victim_keeps_the_size_until_its_time_is_over() -> None:
    engines, pods = FakeEngines(b=1), FakePods()
    busy = workload(replica("a"), replica("b", draining_since=990.0))
    late = workload(replica("a"), replica("b", draining_since=600.0))
    assert await shrink(engines, pods, busy, 1) == 2
    assert await shrink(engines, pods, late, 1) == 1


async def test_calling_back_tells_the_engine_and_unmarks_the_pod() -> None:
    engines, pods = FakeEngines(), FakePods()
    fleet = workload(replica("a"), replica("b", draining_since=990.0))
    assert await shrink(engines, pods, fleet, 2) == 2
    assert engines.calls == ["cancel b"]
    assert pods.labels == {"b": {DRAINING_LABEL: None}}


async def test_pending_replicas_leave_at_once_without_asking_an_engine() -> None:
    engines, pods = FakeEngines(), FakePods()
    fleet = workload(replica("a"), replica("b", ready=False), size=3)
    assert await shrink(engines, pods, fleet, 1) == 1
    assert engines.calls == []
