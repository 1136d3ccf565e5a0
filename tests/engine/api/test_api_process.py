"""The server as a process: start, signals, a core that dies or hangs, a missing model."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp

from pagefleet_engine.api.service import Service
from tests.support.engine_server import (
    ServerProcess,
    server_in_thread,
    server_process,
    tiny_config,
    wait_until,
)

ENDLESS = {"prompt": "hello", "stream": True, "ignore_eos": True, "temperature": 0}


async def read_events(response: aiohttp.ClientResponse) -> list[Any]:
    lines = [line[6:].strip() async for line in response.content if line.startswith(b"data: ")]
    assert lines[-1] == b"[DONE]"
    return [json.loads(line) for line in lines[:-1]]


async def wait_status(server: ServerProcess, path: str, wanted: int) -> None:
    await asyncio.to_thread(server.wait_status, path, wanted)


async def test_sigterm_serves_what_runs_and_what_arrives_then_exits_0(
    tiny_model: Path, tmp_path: Path
) -> None:
    with server_process(tiny_model, tmp_path, "--propagation-seconds", "3600") as server:
        await asyncio.to_thread(
            wait_until, lambda: server.status("/health") is not None, "it listens"
        )
        assert server.status("/ready") == 503, "it listens before the model is loaded"
        await wait_status(server, "/ready", 200)
        async with aiohttp.ClientSession(server.url) as client:
            stream = await client.post("/v1/completions", json=ENDLESS)
            await stream.content.readline()
            server.process.send_signal(signal.SIGTERM)
            await wait_status(server, "/ready", 503)
            body = {"prompt": "hello", "max_tokens": 2}
            async with client.post("/v1/completions", json=body) as response:
                assert response.status == 200, "endpoints are withdrawn late"
            server.process.send_signal(signal.SIGTERM)
            last = (await read_events(stream))[-1]
        finished = "choices" in last and last["choices"][0]["finish_reason"] == "length"
        assert finished or last["error"]["code"] == "draining"
        assert await asyncio.to_thread(server.process.wait) == 0


async def test_sigterm_finishes_what_runs_and_refuses_the_rest(
    tiny_model: Path, tmp_path: Path
) -> None:
    flags = ("--propagation-seconds", "0", "--drain-timeout", "3600")
    with server_process(tiny_model, tmp_path, *flags) as server:
        await wait_status(server, "/ready", 200)
        async with aiohttp.ClientSession(server.url) as client:
            stream = await client.post("/v1/completions", json={**ENDLESS, "max_tokens": 1500})
            await stream.content.readline()
            server.process.send_signal(signal.SIGTERM)
            await wait_status(server, "/ready", 503)
            async with client.post("/v1/completions", json={"prompt": "x"}) as response:
                assert response.status == 503
                assert response.headers["Retry-After"] == "1"
                assert (await response.json())["error"]["code"] == "draining"
            last = (await read_events(stream))[-1]
        assert last["choices"][0]["finish_reason"] == "length"
        assert await asyncio.to_thread(server.process.wait) == 0
        assert not server.termination_log.exists()


async def test_dead_core_fails_requests_and_the_process(tiny_model: Path, tmp_path: Path) -> None:
    with server_process(tiny_model, tmp_path) as server:
        await wait_status(server, "/ready", 200)
        async with aiohttp.ClientSession(server.url) as client:
            stream = await client.post("/v1/completions", json=ENDLESS)
            await stream.content.readline()
            os.kill(core_pid(server.process.pid), signal.SIGKILL)
            last = (await read_events(stream))[-1]
        assert last["error"]["type"] == "server_error"
        assert await asyncio.to_thread(server.process.wait) == 1
        assert server.record()["reason"] == "EngineDied"
        assert "signal 9" in server.record()["message"]


async def test_model_that_is_not_there_ends_the_process_with_a_record(tmp_path: Path) -> None:
    with server_process(tmp_path / "nothing", tmp_path) as server:
        assert await asyncio.to_thread(server.process.wait) == 1
        assert server.record()["reason"] == "ModelLoadFailed"
        assert str(tmp_path / "nothing") in server.record()["message"]


async def test_core_that_hangs_is_unhealthy_and_given_up(tiny_model: Path) -> None:
    service = Service(tiny_config(tiny_model), stall_seconds=1.0)
    with server_in_thread(service) as server:
        await asyncio.to_thread(wait_until, lambda: service.lifecycle.is_ready, "it is ready")
        async with aiohttp.ClientSession(server.url) as client:
            stream = await client.post("/v1/completions", json=ENDLESS)
            await stream.content.readline()
            assert service.engine.core_pid is not None
            os.kill(service.engine.core_pid, signal.SIGSTOP)
            last = (await read_events(stream))[-1]
            assert "no step ended" in last["error"]["message"]
            async with client.get("/health") as response:
                assert response.status == 503
            async with client.post("/v1/completions", json={"prompt": "x"}) as response:
                assert response.status == 500
        assert (await service.engine.wait_dead()).reason == "EngineStalled"


def core_pid(parent: int) -> int:
    """The child that runs the core; the other one tracks multiprocessing's resources."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    (core,) = [
        int(child)
        for child in children
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]
    return core
