"""Why an engine ended: its own record first, then what the kubelet saw."""

from typing import Any

import pytest

from pagefleet_operator.fleet.crash import read_failure, read_out_of_memory
from pagefleet_operator.kube.resources import Manifest


def pod(container: dict[str, Any], *, init: bool = False, plan: str = "p") -> Manifest:
    statuses = "initContainerStatuses" if init else "containerStatuses"
    return {
        "metadata": {"name": "chat-1", "labels": {"pagefleet.io/plan-hash": plan}},
        "status": {statuses: [container]},
    }


def ended(code: int, message: str = "", reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "message": message, "reason": reason}}


def engine(**state: Any) -> dict[str, Any]:
    return {"name": "engine", "ready": False, "image": "e:1", **state}


RECORD = '{"reason": "OutOfMemory", "message": "short by 1.2 GiB"}'
CASES = [
    pytest.param(engine(lastState=ended(1, RECORD)), "OutOfMemory", "short by 1.2", id="record"),
    pytest.param(
        engine(state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState=ended(1, RECORD)),
        "OutOfMemory",
        "short by",
        id="record, waiting to start again",
    ),
    pytest.param(
        engine(lastState=ended(137, reason="OOMKilled")), "OutOfMemory", "memory limit", id="killed"
    ),
    pytest.param(
        engine(lastState=ended(1, "Traceback ... boom")), "EngineFailed", "boom", id="log"
    ),
    pytest.param(
        engine(state={"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}),
        "ImagePullFailed",
        "e:1: not found",
        id="image",
    ),
]


@pytest.mark.parametrize(("container", "reason", "text"), CASES)
def test_reason_and_message(container: dict[str, Any], reason: str, text: str) -> None:
    failure = read_failure([pod(container)], plan_hash="p")
    assert failure is not None
    assert failure[0] == reason and text in failure[1] and "chat-1" in failure[1]


def test_a_model_that_cannot_be_fetched() -> None:
    container = {"name": "model", "ready": False, "state": ended(1, "401 from the hub")}
    failure = read_failure([pod(container, init=True)], plan_hash="p")
    assert failure is not None and failure[0] == "ModelFetchFailed"


def test_a_copy_of_the_model_that_is_killed_is_no_engine_out_of_memory() -> None:
    container = {"name": "model", "ready": False, "state": ended(137, reason="OOMKilled")}
    killed = pod(container, init=True)
    failure = read_failure([killed], plan_hash="p")
    assert failure is not None and failure[0] == "ModelFetchFailed"
    assert read_out_of_memory([killed], plan_hash="p") is None


@pytest.mark.parametrize(("plan", "answer"), [("p", True), ("q", False)])
@pytest.mark.parametrize("state", [ended(1, RECORD), ended(137, reason="OOMKilled")])
def test_any_engine_of_the_plan_can_run_out_of_memory(
    state: dict[str, Any], plan: str, answer: bool
) -> None:
    other = pod(engine(lastState=ended(1, "Traceback ... boom")))
    pods = [other, pod(engine(lastState=state))]
    assert (read_out_of_memory(pods, plan_hash=plan) is not None) is answer


@pytest.mark.parametrize(
    "container",
    [
        {"name": "engine", "ready": True, "lastState": ended(1, RECORD)},
        engine(state=ended(0)),
        engine(state={"running": {}}),
    ],
)
def test_what_serves_or_starts_is_no_failure(container: dict[str, Any]) -> None:
    assert read_failure([pod(container)], plan_hash="p") is None


def test_pods_of_earlier_plans_do_not_count() -> None:
    assert read_failure([pod(engine(lastState=ended(1, RECORD)), plan="q")], plan_hash="p") is None
