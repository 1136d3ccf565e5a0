"""One tiny model and one server with a real engine core, shared by the API tests."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from pagefleet_engine.api.service import Service
from tests.support.engine_server import RunningServer, server_in_thread, tiny_config, wait_until
from tests.support.tiny_model import save_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("tiny"), max_position_embeddings=4096)


@pytest.fixture(scope="session")
def server(tiny_model: Path) -> Iterator[RunningServer]:
    with server_in_thread(Service(tiny_config(tiny_model))) as running:
        service = running.service
        wait_until(lambda: service.lifecycle.is_ready or service.engine.is_dead, "it is ready")
        assert not service.engine.is_dead, "the engine did not start"
        yield running


@pytest_asyncio.fixture
async def client(server: RunningServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(server.url) as session:
        yield session
