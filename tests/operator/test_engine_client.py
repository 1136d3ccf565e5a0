"""What the operator asks of engines: an engine that is gone or odd is no error, only unknown."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer

from pagefleet_operator.fleet.drain import EngineLoad
from pagefleet_operator.fleet.engine_client import EngineClient
from pagefleet_operator.fleet.replicas import Replica


def replica(address: str = "127.0.0.1") -> Replica:
    return Replica(pod={}, name="a", plan_hash="p", address=address, created="")


@asynccontextmanager
async def engine(answer: object, *, status: int = 200) -> AsyncIterator[EngineClient]:
    async def handle(request: web.Request) -> web.Response:
        return web.json_response(answer, status=status)

    app = web.Application()
    app.router.add_route("*", "/drain", handle)
    app.router.add_route("GET", "/ledger", handle)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        yield EngineClient(session, port=server.port or 0, timeout=1.0)


async def test_draining_counts_running_and_waiting_requests() -> None:
    async with engine({"state": "draining", "running": 3, "waiting": 2}, status=202) as client:
        assert await client.drain(replica()) == EngineLoad(5)
        assert await client.loads([replica()]) == {"a": EngineLoad(5)}
        assert await client.cancel_drain(replica())


async def test_victims_can_be_told_apart_by_the_tokens_they_hold() -> None:
    async with engine({"running": 1, "waiting": 0, "kvTokens": 640}) as client:
        assert await client.loads([replica()]) == {"a": EngineLoad(1, kv_tokens=640)}


async def test_an_answer_without_counts_is_unknown_not_idle() -> None:
    async with engine({"state": "draining"}) as client:
        assert await client.drain(replica()) is None
        assert await client.loads([replica()]) == {}


async def test_an_engine_that_refuses_or_is_gone_is_unknown() -> None:
    async with engine({}, status=500) as client:
        assert await client.drain(replica()) is None
        assert not await client.cancel_drain(replica())
    async with aiohttp.ClientSession() as session:
        client = EngineClient(session, port=1, timeout=0.5)
        assert await client.drain(replica()) is None
        assert await client.ledger(replica()) is None


async def test_a_pod_without_an_address_is_not_asked() -> None:
    async with engine({"running": 0, "waiting": 0}) as client:
        assert await client.drain(replica(address="")) is None


async def test_a_ledger_of_another_shape_is_none() -> None:
    async with engine({"terms": []}) as client:
        assert await client.ledger(replica()) is None
    async with engine({"terms": [], "kv": {}}) as client:
        assert await client.ledger(replica()) == {"terms": [], "kv": {}}
