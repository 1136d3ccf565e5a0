"""A whole term over the fake API server: kopf's watches, the queue, the resync, the end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry

from pagefleet_operator.kube.client import Kube
from pagefleet_operator.kube.resources import CHILDREN, INFERENCE_DEPLOYMENTS, NODES, PODS
from pagefleet_operator.process.health import Health
from pagefleet_operator.process.leading import Leading
from pagefleet_operator.process.metrics import OperatorMetrics
from pagefleet_operator.process.settings import Settings
from tests.operator.fake_api import FakeApi
from tests.operator.loop import infd, node


@asynccontextmanager
async def term(api: FakeApi, *, resync: float = 300.0) -> AsyncIterator[Health]:
    environment = {"POD_NAME": "op-0", "PAGEFLEET_RESYNC_SECONDS": str(resync)}
    settings = Settings.from_env(environment)
    health, stop = Health(), asyncio.Event()
    async with api.serve() as credentials, Kube(credentials) as kube:
        metrics = OperatorMetrics(CollectorRegistry())
        leading = Leading(kube, credentials, settings, metrics=metrics, health=health)
        running = asyncio.create_task(leading.run(stop))
        try:
            yield health
            assert not running.done(), running.exception()
        finally:
            stop.set()
            running.cancel()
            await asyncio.wait([running], timeout=30)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def inspections(api: FakeApi) -> list[str]:
    return [name for name in api.names(PODS) if "-inspect-" in name]


async def test_objects_that_exist_and_objects_that_come_are_both_taken_up() -> None:
    api = FakeApi()
    api.put(NODES, node())
    api.put(INFERENCE_DEPLOYMENTS, infd("before"))
    async with term(api):
        await until(lambda: len(inspections(api)) == 1)
        api.put(INFERENCE_DEPLOYMENTS, infd("after"))
        await until(lambda: len(inspections(api)) == 2)


async def test_kopf_writes_nothing_of_its_own() -> None:
    api = FakeApi()
    api.put(NODES, node())
    api.put(INFERENCE_DEPLOYMENTS, infd())
    async with term(api):
        await until(lambda: len(inspections(api)) == 1)
        await asyncio.sleep(0.3)
    body = api.get(INFERENCE_DEPLOYMENTS, "ns", "chat")
    assert body is not None
    assert not {"finalizers", "annotations"} & body["metadata"].keys()
    kinds = {"pods", "events", "status"}
    paths = {write.path.rsplit("/", 1)[-1] for write in api.writes}
    assert paths <= kinds


async def test_one_object_that_cannot_be_read_does_not_stop_the_others() -> None:
    api = FakeApi()
    api.put(NODES, node())
    api.put(INFERENCE_DEPLOYMENTS, infd("bad", replicas="many"))
    api.put(INFERENCE_DEPLOYMENTS, infd("good"))
    async with term(api):
        await until(lambda: [n.startswith("good") for n in inspections(api)] == [True])
        await until(lambda: "status" in (api.get(INFERENCE_DEPLOYMENTS, "ns", "bad") or {}))


async def test_the_resync_finds_what_no_watch_has_shown() -> None:
    api = FakeApi()
    api.put(NODES, node())
    async with term(api, resync=0.3):
        await asyncio.sleep(0.2)
        api.lose_events = True
        api.put(INFERENCE_DEPLOYMENTS, infd())
        await until(lambda: len(inspections(api)) == 1)


async def test_watches_catch_up_with_the_first_listing() -> None:
    api = FakeApi()
    api.put(NODES, node())
    api.put(INFERENCE_DEPLOYMENTS, infd())
    async with term(api) as health:
        await until(lambda: api.watched == {NODES, PODS, INFERENCE_DEPLOYMENTS, *CHILDREN})
        await until(lambda: [check() for check in health.live.values()] == [None] * 4)


async def test_the_term_waits_for_the_crd_and_says_so() -> None:
    api = FakeApi()
    without = api.objects.pop(INFERENCE_DEPLOYMENTS)
    async with term(api) as health:
        await until(lambda: "crd" in health.ready)
        problem = health.ready["crd"]()
        assert problem is not None and "inferencedeployments.pagefleet.io" in problem
    assert without == {} and api.writes == []
