"""Leader election over the fake API server, on a clock that only the test moves."""

from collections.abc import AsyncIterator

import pytest

from pagefleet_operator.kube.api_errors import LeadershipLost
from pagefleet_operator.kube.client import Kube
from pagefleet_operator.kube.leader import LeaderElector
from pagefleet_operator.kube.resources import LEASES, Manifest
from tests.operator.fake_api import FakeApi, Fault


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def kube(api: FakeApi, clock: Clock) -> AsyncIterator[Kube]:
    async with api.serve() as credentials, Kube(credentials, sleep=clock.sleep) as client:
        yield client


def elector(kube: Kube, clock: Clock, name: str) -> LeaderElector:
    return LeaderElector(kube, identity=name, namespace="sys", clock=clock, sleep=clock.sleep)


def lease(api: FakeApi) -> Manifest:
    found = api.get(LEASES, "sys", "pagefleet-operator")
    assert found is not None
    return found


async def test_the_first_one_takes_the_lease(kube: Kube, api: FakeApi, clock: Clock) -> None:
    first = elector(kube, clock, "a")
    assert not first.is_leader
    await first.acquire()
    assert first.is_leader
    assert lease(api)["spec"]["holderIdentity"] == "a"
    assert lease(api)["spec"]["leaseDurationSeconds"] == 15


async def test_a_dead_leader_is_followed_within_sixteen_seconds(
    kube: Kube, api: FakeApi, clock: Clock
) -> None:
    first, second = elector(kube, clock, "a"), elector(kube, clock, "b")
    await first.acquire()
    started = clock.now
    await second.acquire()
    assert clock.now - started <= 16.1
    assert lease(api)["spec"]["holderIdentity"] == "b"
    assert lease(api)["spec"]["leaseTransitions"] == 1


async def test_the_dead_leader_stopped_writing_before_the_next_one_began(
    kube: Kube, clock: Clock
) -> None:
    first, second = elector(kube, clock, "a"), elector(kube, clock, "b")
    await first.acquire()
    await second.acquire()
    assert not first.is_leader
    with pytest.raises(LeadershipLost):
        first.fence()
    second.fence()


async def test_a_lease_that_is_renewed_is_never_taken(
    kube: Kube, clock: Clock, api: FakeApi
) -> None:
    first, second = elector(kube, clock, "a"), elector(kube, clock, "b")
    await first.acquire()
    for _ in range(30):
        assert await first._try()
        assert not await second._try()
        clock.now += 2.0
    assert lease(api)["spec"]["leaseTransitions"] == 0


async def test_a_released_lease_is_taken_at_the_next_look(
    kube: Kube, clock: Clock, api: FakeApi
) -> None:
    first, second = elector(kube, clock, "a"), elector(kube, clock, "b")
    await first.acquire()
    await first.release()
    assert not first.is_leader
    started = clock.now
    await second.acquire()
    assert clock.now == started


async def test_holding_ends_when_the_server_is_away_for_the_renew_deadline(
    kube: Kube, clock: Clock, api: FakeApi
) -> None:
    leader = elector(kube, clock, "a")
    await leader.acquire()
    started = clock.now
    api.faults = [Fault("GET", "leases", 500)] * 1000
    with pytest.raises(LeadershipLost):
        await leader.hold()
    assert clock.now - started >= 10.0
    assert not leader.is_leader


async def test_one_failed_renewal_is_no_loss(kube: Kube, clock: Clock, api: FakeApi) -> None:
    leader = elector(kube, clock, "a")
    await leader.acquire()
    clock.now += 2.0
    api.faults = [Fault("PUT", "leases", 409)]
    assert not await leader._try()
    assert leader.is_leader
    assert await leader._try()


async def test_only_one_of_two_wins_the_same_moment(kube: Kube, clock: Clock, api: FakeApi) -> None:
    first, second = elector(kube, clock, "a"), elector(kube, clock, "b")
    assert [await first._try(), await second._try()] == [True, False]


async def test_a_lease_stolen_by_hand_ends_the_term(kube: Kube, clock: Clock, api: FakeApi) -> None:
    leader = elector(kube, clock, "a")
    await leader.acquire()
    stolen = lease(api)
    api.put(LEASES, {**stolen, "spec": {**stolen["spec"], "holderIdentity": "thief"}})
    with pytest.raises(LeadershipLost):
        await leader.hold()


async def test_a_clock_of_another_machine_does_not_matter(
    kube: Kube, clock: Clock, api: FakeApi
) -> None:
    first, second = elector(kube, clock, "a"), elector(kube, clock, "b")
    await first.acquire()
    held = lease(api)
    spec = {**held["spec"], "renewTime": "1999-01-01T00:00:00.000000Z"}
    api.put(LEASES, {**held, "spec": spec})
    assert not await second._try()


async def test_an_empty_lease_of_the_chart_is_free(kube: Kube, clock: Clock, api: FakeApi) -> None:
    api.put(LEASES, {"metadata": {"name": "pagefleet-operator", "namespace": "sys"}})
    await elector(kube, clock, "a").acquire()
    assert lease(api)["spec"]["holderIdentity"] == "a"
