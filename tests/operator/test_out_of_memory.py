"""The loop with engines that die of memory: bounded steps, then a condition, never a storm."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from pagefleet_operator.kube.resources import EVENTS, INFERENCE_DEPLOYMENTS, NODES, PODS
from tests.operator.builders import gpu_node
from tests.operator.fake_api import FakeApi
from tests.operator.loop import Loop, infd, loop_over, node

RECORD = '{"reason": "OutOfMemory", "message": "the KV pool is 1.2 GiB short"}'


@pytest.fixture
async def loop() -> AsyncIterator[Loop]:
    api = FakeApi()
    api.put(NODES, node())
    async with loop_over(api) as running:
        yield running


async def start(loop: Loop, **spec: Any) -> None:
    loop.api.put(INFERENCE_DEPLOYMENTS, infd(**spec))
    await loop.resolve()


def die(loop: Loop) -> None:
    """Every engine that there is ends before it serves, and waits for its next start."""
    loop.run_pods(ready=False)
    ended = {"terminated": {"exitCode": 1, "message": RECORD}}
    crashed = {"name": "engine", "ready": False, "state": {"waiting": {}}, "lastState": ended}
    for pod in loop.engine_pods():
        loop.api.put(PODS, {**pod, "status": {**pod["status"], "containerStatuses": [crashed]}})


def told(loop: Loop) -> list[str]:
    events = loop.api.objects[EVENTS].values()
    return [event["note"] for event in events if event["reason"] == "MemoryLowered"]


async def test_engines_that_always_die_cost_two_steps_and_then_a_condition(loop: Loop) -> None:
    await start(loop, replicas=2)
    hashes = [loop.status["plan"]["hash"]]
    for _ in range(12):
        die(loop)
        await loop.look()
        if loop.status["plan"]["hash"] not in hashes:
            hashes.append(loop.status["plan"]["hash"])
    assert len(hashes) == 3 and loop.status["plan"]["hash"] == hashes[-1]
    backoff = loop.status["plan"]["backoff"]
    assert (backoff["steps"], backoff["engineImage"]) == (2, "engine:1")
    assert "the KV pool is 1.2 GiB short" in backoff["message"]
    status, reason, message = loop.condition("WorkloadReady")
    assert (status, reason) == ("False", "OutOfMemory")
    assert "the KV pool is 1.2 GiB short" in message and "lowered 2 times" in message
    assert len(told(loop)) == 2
    loop.writes()
    die(loop)
    await loop.look(times=3)
    assert loop.writes() == []


async def test_one_step_that_helps_is_kept_over_a_restart_of_the_operator(loop: Loop) -> None:
    await start(loop)
    die(loop)
    await loop.look()
    stepped = loop.status["plan"]["hash"]
    for _ in range(6):
        loop.run_pods()
        await loop.look()
    assert loop.condition("Ready")[0] == "True"
    async with loop_over(loop.api) as successor:
        await successor.look(times=2)
        assert successor.status["plan"]["hash"] == stepped
    assert loop.status["plan"]["notes"][0].startswith("engines ran out of memory")


async def test_a_pinned_share_is_never_changed(loop: Loop) -> None:
    loop.api.put(NODES, gpu_node("n1"))
    await start(loop, hardware={"accelerator": "GPU"}, sizing={"gpuMemoryUtilization": "0.9"})
    plan = loop.status["plan"]
    for _ in range(3):
        die(loop)
        await loop.look()
    assert loop.status["plan"] == plan and told(loop) == []
    _, reason, message = loop.condition("WorkloadReady")
    assert reason == "OutOfMemory" and "gpuMemoryUtilization is set to 0.9" in message
