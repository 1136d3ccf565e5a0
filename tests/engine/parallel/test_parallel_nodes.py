"""A replica over two pods: two launchers here that meet as the pods of a LeaderWorkerSet do."""

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.engine_server import ServerProcess, free_port, server_process, wait_until
from tests.support.tiny_model import save_tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("tiny"))


@contextmanager
def two_pods(model: Path, folder: Path) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """The leading pod, which is ready, and the other one; each computes one stage."""
    shared = {"NUM_NODES": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    flags = ["--pipeline-parallel-size", "2", "--propagation-seconds", "0"]
    folders = [folder / name for name in ("leader", "worker")]
    for each in folders:
        each.mkdir()
    with (
        server_process(model, folders[1], *flags, variables={**shared, "NODE_RANK": "1"}) as worker,
        server_process(model, folders[0], *flags, variables={**shared, "NODE_RANK": "0"}) as leader,
    ):
        leader.wait_status("/ready", 200)
        yield leader, worker


def complete(server: ServerProcess) -> int:
    """The number of tokens of an answer."""
    body = {"prompt": "hello", "max_tokens": 4, "ignore_eos": True}
    request = urllib.request.Request(
        f"{server.url}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=300) as response:
        tokens: int = json.load(response)["usage"]["completion_tokens"]
        return tokens


def grandchildren(pid: int) -> list[int]:
    """The ranks of a launcher: processes that the server in between has forked."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    return [each for each, parent in parents.items() if parents.get(parent) == pid]


def test_a_signal_to_the_other_pod_ends_nothing_until_the_leader_stops(
    model: Path, tmp_path: Path
) -> None:
    with two_pods(model, tmp_path) as (leader, worker):
        assert complete(leader) == 4
        worker.process.send_signal(signal.SIGTERM)
        assert complete(leader) == 4, "the leader drains, and needs all its ranks for that"
        leader.process.send_signal(signal.SIGTERM)
        assert leader.process.wait() == 0
        assert worker.process.wait() == 0


def test_a_rank_that_dies_ends_both_pods_with_a_record(model: Path, tmp_path: Path) -> None:
    with two_pods(model, tmp_path) as (leader, worker):
        (rank,) = grandchildren(worker.process.pid)
        os.kill(rank, signal.SIGKILL)
        wait_until(lambda: leader.process.poll() is not None, "the leader has ended")
        assert leader.process.wait() == 1
        assert leader.record() == {
            "reason": "RankDied",
            "message": "rank 1 has ended without a word",
        }
        assert worker.process.wait() == 1
        assert worker.record()["reason"] == "RankDied"
