"""Engine servers for tests: one in a thread of this process, one as a process of its own."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from pagefleet_engine.api.app import build_app
from pagefleet_engine.api.service import Service
from pagefleet_engine.config import EngineConfig

START_SECONDS = 300.0  # patience with a busy machine, not an expectation


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server in a thread; `service` may be read from the test, not changed."""

    url: str
    service: Service


@contextmanager
def server_in_thread(service: Service) -> Iterator[RunningServer]:
    """Serve until the block ends; the engine core runs in its real child process."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        runner, url = asyncio.run_coroutine_threadsafe(_start(service), loop).result()
        try:
            yield RunningServer(url, service)
        finally:
            asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _start(service: Service) -> tuple[web.AppRunner, str]:
    runner = web.AppRunner(build_app(service), handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


def tiny_config(model: Path, **settings: object) -> EngineConfig:
    """Settings under which a tiny model starts fast and always the same way."""
    defaults: dict[str, object] = {
        "model": str(model),
        "served_model_name": "tiny",
        "device": "cpu",
        "dtype": "float32",
        "max_num_seqs": 8,
        "max_num_batched_tokens": 256,
        "num_gpu_blocks_override": 512,
        "device_memory_bytes": 8 * 1024**3,
    }
    return EngineConfig(**{**defaults, **settings})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """`python -m pagefleet_engine` and where it answers."""

    process: subprocess.Popen[bytes]
    url: str
    termination_log: Path

    def status(self, path: str) -> int | None:
        """The status of a GET, None while nothing listens."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=30) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except (urllib.error.URLError, ConnectionError):
            return None

    def wait_status(self, path: str, wanted: int) -> None:
        wait_until(lambda: self.status(path) == wanted, f"{path} is {wanted}")

    def record(self) -> dict[str, str]:
        loaded: dict[str, str] = json.loads(self.termination_log.read_text(encoding="utf-8"))
        return loaded


@contextmanager
def server_process(
    model: Path, folder: Path, *flags: str, variables: Mapping[str, str] | None = None
) -> Iterator[ServerProcess]:
    """The command as a pod runs it, with these variables beside those of the tests."""
    port = free_port()
    record = folder / "termination.json"
    command = [sys.executable, "-m", "pagefleet_engine", "--model", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--termination-log", str(record)]
    command += ["--device", "cpu", "--dtype", "float32", "--num-gpu-blocks-override", "512"]
    command += ["--max-num-batched-tokens", "256", "--max-num-seqs", "8"]
    command += ["--device-memory-bytes", str(8 * 1024**3)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **(variables or {})}
    process = subprocess.Popen([*command, *flags], env=environment)
    try:
        yield ServerProcess(process, f"http://127.0.0.1:{port}", record)
    finally:
        process.kill()
        process.wait()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Poll until it holds; a generous limit only ends a test that would never end."""
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited {START_SECONDS} s until {what}"
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
