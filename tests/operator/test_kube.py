"""The API client against the fake server: verbs, paging, retries, fencing, token reload."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pagefleet_operator.kube.api_errors import Conflict, Invalid, LeadershipLost, Unavailable
from pagefleet_operator.kube.client import Kube
from pagefleet_operator.kube.credentials import from_kubeconfig
from pagefleet_operator.kube.resources import (
    CONFIG_MAPS,
    LEADER_WORKER_SETS,
    PODS,
    SERVICES,
    Manifest,
)
from tests.operator.fake_api import FakeApi, Fault, credentials_for
from tests.operator.kubeconfigs import kubeconfig


def config_map(name: str, **data: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "ns"},
        "data": data,
    }


class Sleeps:
    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def sleeps() -> Sleeps:
    return Sleeps()


@pytest.fixture
async def kube(api: FakeApi, sleeps: Sleeps) -> AsyncIterator[Kube]:
    async with api.serve() as credentials, Kube(credentials, sleep=sleeps) as client:
        yield client


async def test_apply_creates_then_drops_what_is_no_longer_applied(kube: Kube, api: FakeApi) -> None:
    await kube.apply(config_map("a", x="1", y="2"))
    await kube.apply(config_map("a", x="3"))
    stored = api.get(CONFIG_MAPS, "ns", "a")
    assert stored is not None and stored["data"] == {"x": "3"}


async def test_get_of_what_is_not_there_is_none(kube: Kube) -> None:
    assert await kube.get(CONFIG_MAPS, "ns", "a") is None


async def test_list_reads_every_page_and_names_the_kind(kube: Kube, api: FakeApi) -> None:
    for number in range(7):
        api.put(CONFIG_MAPS, config_map(f"m{number}"))
    api.page_size = 3
    listed = await kube.list_all(CONFIG_MAPS)
    assert [item["metadata"]["name"] for item in listed] == [f"m{n}" for n in range(7)]
    assert {(item["apiVersion"], item["kind"]) for item in listed} == {("v1", "ConfigMap")}


async def test_list_starts_again_when_its_continue_token_expired(kube: Kube, api: FakeApi) -> None:
    for number in range(5):
        api.put(CONFIG_MAPS, config_map(f"m{number}"))
    api.page_size, api.expire_lists_once = 2, True
    assert len(await kube.list_all(CONFIG_MAPS)) == 5


async def test_too_many_requests_waits_as_long_as_the_server_says(
    kube: Kube, api: FakeApi, sleeps: Sleeps
) -> None:
    api.faults = [Fault("GET", "configmaps", 429, {"Retry-After": "7"})]
    await kube.list_all(CONFIG_MAPS)
    assert sleeps.seconds == [7.0]


async def test_server_errors_are_retried_with_growing_waits_and_then_raised(
    kube: Kube, api: FakeApi, sleeps: Sleeps
) -> None:
    api.faults = [Fault("GET", "configmaps", 503)] * 20
    with pytest.raises(Unavailable):
        await kube.list_all(CONFIG_MAPS)
    assert len(sleeps.seconds) == 5 and sleeps.seconds[-1] > sleeps.seconds[0]


async def test_an_apply_that_conflicts_is_tried_again(kube: Kube, api: FakeApi) -> None:
    api.faults = [Fault("PATCH", "configmaps", 409)]
    await kube.apply(config_map("a", x="1"))
    assert api.get(CONFIG_MAPS, "ns", "a") is not None


async def test_an_update_of_an_old_version_is_a_conflict_for_the_caller(
    kube: Kube, api: FakeApi
) -> None:
    old = api.put(CONFIG_MAPS, config_map("a", x="1"))
    api.put(CONFIG_MAPS, config_map("a", x="2"))
    with pytest.raises(Conflict):
        await kube.replace({**old, "data": {"x": "3"}})


async def test_a_refused_object_is_not_retried(kube: Kube, api: FakeApi, sleeps: Sleeps) -> None:
    api.faults = [Fault("PATCH", "configmaps", 422)]
    with pytest.raises(Invalid, match="ordered by the test"):
        await kube.apply(config_map("a"))
    assert sleeps.seconds == []


async def test_delete_spares_a_namesake_and_accepts_absence(kube: Kube, api: FakeApi) -> None:
    old = api.put(CONFIG_MAPS, {**config_map("a"), "metadata": _meta("a", uid="old")})
    api.remove(CONFIG_MAPS, "ns", "a")
    await kube.delete(old)
    api.put(CONFIG_MAPS, {**config_map("a"), "metadata": _meta("a", uid="new")})
    await kube.delete(old)
    assert api.names(CONFIG_MAPS) == ["a"]


def _meta(name: str, *, uid: str) -> Manifest:
    return {"name": name, "namespace": "ns", "uid": uid}


async def test_merge_patch_touches_only_its_fields(kube: Kube, api: FakeApi) -> None:
    live = api.put(CONFIG_MAPS, config_map("a", x="1", y="2"))
    await kube.patch(live, {"data": {"y": None}})
    stored = api.get(CONFIG_MAPS, "ns", "a")
    assert stored is not None and stored["data"] == {"x": "1"}


async def test_no_write_leaves_once_leadership_may_be_lost(kube: Kube, api: FakeApi) -> None:
    def fence() -> None:
        raise LeadershipLost("gone")

    kube.set_fence(fence)
    with pytest.raises(LeadershipLost):
        await kube.apply(config_map("a"))
    assert api.writes == []
    assert await kube.list_all(CONFIG_MAPS) == []


async def test_leadership_lost_between_retries_stops_the_retry(
    kube: Kube, api: FakeApi, sleeps: Sleeps
) -> None:
    def fence() -> None:
        if sleeps.seconds:
            raise LeadershipLost("gone")

    kube.set_fence(fence)
    api.faults = [Fault("PATCH", "configmaps", 500)] * 9
    with pytest.raises(LeadershipLost):
        await kube.apply(config_map("a"))
    assert len(api.faults) == 8


async def test_optional_kinds_are_found_by_discovery(kube: Kube) -> None:
    assert await kube.serves(SERVICES)
    assert await kube.serves(PODS)
    assert not await kube.serves(LEADER_WORKER_SETS)


async def test_a_rotated_token_is_read_again(api: FakeApi, tmp_path: Path) -> None:
    token, clock = tmp_path / "token", [0.0]
    token.write_text("one")
    async with api.serve() as served:
        path = kubeconfig(tmp_path, user={"tokenFile": "token"}, server=served.server)
        credentials = await from_kubeconfig(str(path), clock=lambda: clock[0])
        async with Kube(credentials) as kube:
            await kube.list_all(CONFIG_MAPS)
            token.write_text("two\n")
            clock[0] += 61
            await kube.list_all(CONFIG_MAPS)
    assert api.tokens == ["Bearer one", "Bearer two"]


async def test_a_server_that_is_gone_is_unavailable(sleeps: Sleeps) -> None:
    credentials = credentials_for("http://127.0.0.1:1")
    async with Kube(credentials, sleep=sleeps) as kube:
        with pytest.raises(Unavailable, match="no answer from the API server"):
            await kube.list_all(CONFIG_MAPS)
