"""The loop over the fake API server: from apply to Ready, edits, refusals, drains, restarts.

Left to the real cluster: defaults and CEL, garbage collection, the kubelet's own timing.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from pagefleet_operator.kube.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    INFERENCE_DEPLOYMENTS,
    NODES,
    PODS,
    SERVICES,
    Key,
)
from pagefleet_operator.planning.images import Images
from tests.operator.fake_api import FakeApi, Fault
from tests.operator.loop import IMAGES, Loop, infd, loop_over, node


@pytest.fixture
async def loop() -> AsyncIterator[Loop]:
    api = FakeApi()
    api.put(NODES, node())
    async with loop_over(api) as running:
        yield running


async def ready(loop: Loop, **spec: Any) -> None:
    """An object that serves, with nothing left to do."""
    loop.api.put(INFERENCE_DEPLOYMENTS, infd(**spec))
    await loop.resolve()
    loop.run_pods()
    await loop.look(times=2)
    loop.writes()


async def settle(loop: Loop, *, rounds: int = 12) -> int:
    """Let controllers and reconciler take turns; returns the fewest pods that served."""
    fewest = 99
    for _ in range(rounds):
        await loop.look()
        loop.run_pods()
        fewest = min(fewest, sum(_serves(pod) for pod in loop.engine_pods()))
    await loop.look()
    return fewest


def _serves(pod: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    return pod["status"]["conditions"][0]["status"] == "True"


async def test_from_apply_to_ready(loop: Loop) -> None:
    loop.api.put(INFERENCE_DEPLOYMENTS, infd(replicas=2))
    await loop.look()
    assert len(loop.inspections()) == 1
    assert loop.condition("ModelResolved")[:2] == ("Unknown", "Inspecting")
    loop.answer_inspection()
    await loop.look()
    assert loop.status["plan"]["kvTokens"] > 0
    assert loop.inspections() == []
    loop.run_pods()
    await loop.look()
    assert loop.condition("Ready")[:2] == ("True", "Serving")
    assert (loop.status["replicas"], loop.status["readyReplicas"]) == (2, 2)
    assert loop.status["observedGeneration"] == 1
    assert loop.api.names(SERVICES) == ["chat", "chat-pods"]


async def test_a_settled_object_causes_no_write(loop: Loop) -> None:
    await ready(loop, replicas=2)
    await loop.look(times=3)
    assert loop.writes() == []


async def test_a_restarted_operator_writes_nothing(loop: Loop) -> None:
    await ready(loop, replicas=2)
    async with loop_over(loop.api) as successor:
        await successor.look(times=2)
    assert loop.writes() == []


async def test_an_upgraded_operator_asks_no_model_again_and_rolls_nothing(loop: Loop) -> None:
    await ready(loop)
    plan = loop.status["plan"]["hash"]
    newer = Images(engine=IMAGES.engine, operator="operator:2")
    async with loop_over(loop.api, newer) as successor:
        await successor.look(times=2)
        assert successor.condition("Ready")[0] == "True"
    assert loop.inspections() == [] and loop.status["plan"]["hash"] == plan
    assert len(loop.api.objects[DEPLOYMENTS]) == 1


async def test_a_new_way_to_build_the_same_plans_pods_restarts_none(loop: Loop) -> None:
    await ready(loop)
    deployment = next(iter(loop.api.objects[DEPLOYMENTS].values()))
    deployment["spec"]["template"]["spec"]["schedulerName"] = "default-scheduler"
    loop.api.put(DEPLOYMENTS, deployment)
    before = deployment["spec"]["template"]
    loop.edit(replicas=3)
    await loop.look(times=2)
    after = next(iter(loop.api.objects[DEPLOYMENTS].values()))
    assert after["spec"]["replicas"] == 3 and after["spec"]["template"] == before


async def test_a_new_spec_that_leaves_the_plan_alone_only_moves_the_generation(
    loop: Loop,
) -> None:
    await ready(loop)
    loop.edit(rolloutStrategy={"maxSurge": 2})
    await loop.look()
    assert loop.status["observedGeneration"] == 2
    assert [write.path.rsplit("/", 1)[1] for write in loop.writes()] == ["status"]


async def test_an_edit_that_changes_the_plan_rolls_without_losing_a_replica(loop: Loop) -> None:
    await ready(loop, replicas=2)
    old = loop.status["plan"]["hash"]
    loop.edit(workload={"maxModelLen": 1024})
    fewest = await settle(loop)
    assert loop.status["plan"]["hash"] != old
    assert loop.api.names(DEPLOYMENTS) == [f"chat-{loop.status['plan']['hash']}"]
    assert loop.condition("Ready")[0] == "True"
    assert loop.status["updatedReplicas"] == loop.status["replicas"] == 2
    assert fewest >= 2


async def test_with_no_room_an_edit_replaces_one_replica_at_a_time(loop: Loop) -> None:
    loop.api.put(NODES, node(cpu="2"))
    await ready(loop, replicas=2)
    loop.edit(workload={"maxModelLen": 1024})
    fewest = await settle(loop)
    assert loop.condition("Ready")[0] == "True" and loop.status["updatedReplicas"] == 2
    assert fewest == 1


async def test_scaling_down_waits_for_the_requests_of_the_victim(loop: Loop) -> None:
    await ready(loop, replicas=3)
    busy, other, idle = (pod["metadata"]["name"] for pod in loop.engine_pods())
    loop.engines.requests = {busy: 5, other: 3, idle: 1}
    loop.edit(replicas=2)
    await loop.look()
    loop.run_pods()
    await loop.look()
    assert loop.engines.draining == {idle}
    assert next(iter(loop.api.objects[DEPLOYMENTS].values()))["spec"]["replicas"] == 3
    loop.engines.requests[idle] = 0
    await settle(loop, rounds=3)
    assert [pod["metadata"]["name"] for pod in loop.engine_pods()] == [busy, other]


async def test_demand_that_returns_calls_the_drain_back(loop: Loop) -> None:
    await ready(loop, replicas=2)
    for pod in loop.engine_pods():
        loop.engines.requests[pod["metadata"]["name"]] = 1
    loop.edit(replicas=1)
    await loop.look()
    assert len(loop.engines.draining) == 1
    loop.edit(replicas=2)
    await settle(loop, rounds=3)
    assert loop.engines.draining == set() and loop.condition("Ready")[0] == "True"


async def test_a_drain_ends_after_its_timeout(loop: Loop) -> None:
    await ready(loop, replicas=1, drain={"timeoutSeconds": 60})
    pod = loop.engine_pods()[0]["metadata"]["name"]
    loop.engines.requests[pod] = 9
    loop.edit(replicas=0)
    await loop.look()
    loop.run_pods()
    await loop.look()
    assert len(loop.engine_pods()) == 1
    loop.clock[0] += 61
    await loop.look()
    loop.run_pods()
    assert loop.engine_pods() == []


async def test_a_model_too_large_is_refused_with_numbers_and_healed_by_an_edit(
    loop: Loop,
) -> None:
    loop.api.put(
        INFERENCE_DEPLOYMENTS,
        infd(hardware={"accelerator": "CPU", "cpu": "1", "memory": "1Gi"}),
    )
    await loop.resolve()
    status, _, message = loop.condition("MemoryFits")
    assert status == "False" and any(digit in message for digit in "0123456789")
    refusal = loop.status["refusal"]
    assert "plan" not in loop.status and refusal["message"] == message
    assert refusal["rejected"][0]["shortByBytes"] > 0
    assert loop.api.names(DEPLOYMENTS) == []
    loop.edit(hardware={"accelerator": "CPU", "cpu": "1", "memory": "4Gi"})
    await loop.look()
    assert loop.condition("MemoryFits")[0] == "True" and "refusal" not in loop.status


async def test_a_refused_edit_leaves_the_serving_replicas_alone(loop: Loop) -> None:
    await ready(loop, replicas=2)
    loop.edit(hardware={"accelerator": "CPU", "cpu": "1", "memory": "1Gi"})
    await settle(loop, rounds=3)
    assert len(loop.engine_pods()) == 2
    assert loop.condition("Ready")[0] == "False"


async def test_no_room_names_the_shortfall_and_heals_with_a_node(loop: Loop) -> None:
    loop.api.put(INFERENCE_DEPLOYMENTS, infd(replicas=9))
    await loop.resolve()
    status, _, message = loop.condition("CapacityAvailable")
    assert status == "False" and "n1" in message and "short of" in message
    loop.api.put(NODES, node("n2"))
    await loop.look()
    assert loop.condition("CapacityAvailable")[0] == "True"


async def test_a_failed_inspection_says_why_and_is_tried_again_later(loop: Loop) -> None:
    loop.api.put(INFERENCE_DEPLOYMENTS, infd())
    await loop.look()
    loop.answer_inspection({"error": {"reason": "ModelNotFound", "message": "no config.json"}})
    waits = (await loop.look()).requeue_after
    assert loop.condition("ModelResolved") == ("False", "ModelNotFound", "no config.json")
    first = loop.inspections()
    assert waits == 10.0 and len(first) == 1
    loop.clock[0] += 11
    await loop.look(times=2)
    again = loop.api.get(PODS, "ns", loop.inspections()[0])
    assert again is not None and "status" not in again
    loop.answer_inspection({"error": {"reason": "ModelNotFound", "message": "no config.json"}})
    assert (await loop.look()).requeue_after == 20.0


async def test_a_new_model_is_inspected_anew_and_the_old_pod_removed(loop: Loop) -> None:
    loop.api.put(INFERENCE_DEPLOYMENTS, infd())
    await loop.look()
    first = loop.inspections()
    loop.edit(model={"uri": "oci://models/other:2"})
    await loop.look(times=2)
    assert len(loop.inspections()) == 1 and loop.inspections() != first


async def test_an_object_that_does_not_parse_gets_a_condition_and_stops_nobody(
    loop: Loop,
) -> None:
    loop.api.put(INFERENCE_DEPLOYMENTS, infd(sizing={"gpuMemoryUtilization": "7"}))
    await loop.look()
    status, reason, message = loop.condition("Ready")
    assert (status, reason) == ("False", "InvalidSpec")
    assert "gpuMemoryUtilization" in message and "'7'" in message
    loop.api.put(INFERENCE_DEPLOYMENTS, infd("other"))
    await loop.look(Key("ns", "other"))
    assert len(loop.inspections()) == 1


async def test_a_child_removed_by_hand_comes_back(loop: Loop) -> None:
    await ready(loop)
    loop.api.remove(SERVICES, "ns", "chat")
    await loop.look()
    assert "chat" in loop.api.names(SERVICES)


async def test_a_foreign_edit_of_an_owned_field_is_undone(loop: Loop) -> None:
    await ready(loop)
    service = loop.api.get(SERVICES, "ns", "chat")
    assert service is not None
    service = {**service, "spec": {**service["spec"], "selector": {"app": "mine"}}}
    loop.api.put(SERVICES, service)
    await loop.look()
    healed = loop.api.get(SERVICES, "ns", "chat")
    assert healed is not None and "pagefleet.io/role" in healed["spec"]["selector"]


async def test_suspend_drains_everything_and_keeps_the_service(loop: Loop) -> None:
    await ready(loop, replicas=2)
    loop.edit(suspend=True)
    await settle(loop)
    assert loop.engine_pods() == [] and "chat" in loop.api.names(SERVICES)
    assert loop.condition("Ready")[:2] == ("False", "Suspended")


async def test_plan_only_runs_nothing_and_removes_what_ran(loop: Loop) -> None:
    await ready(loop)
    loop.edit(sizing={"mode": "PlanOnly"})
    await settle(loop)
    assert loop.api.names(DEPLOYMENTS) == loop.api.names(SERVICES) == []
    assert loop.status["plan"]["kvTokens"] > 0


async def test_a_deleted_object_is_left_to_its_owner_references(loop: Loop) -> None:
    await ready(loop)
    body = loop.api.get(INFERENCE_DEPLOYMENTS, "ns", "chat")
    assert body is not None
    deleted = {**body["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    loop.api.put(INFERENCE_DEPLOYMENTS, {**body, "metadata": deleted})
    await loop.look()
    loop.api.remove(INFERENCE_DEPLOYMENTS, "ns", "chat")
    await loop.look()
    assert loop.writes() == []


async def test_events_tell_transitions_once(loop: Loop) -> None:
    await ready(loop)
    reasons = [event["reason"] for event in loop.api.objects[EVENTS].values()]
    assert "Serving" in reasons and "Inspected" in reasons
    count = len(reasons)
    await loop.look(times=3)
    assert len(loop.api.objects[EVENTS]) == count


async def test_an_event_that_cannot_be_written_stops_nothing(loop: Loop) -> None:
    loop.api.faults = [Fault("POST", "events", 403)] * 50
    await ready(loop)
    assert loop.condition("Ready")[0] == "True"


async def test_a_plan_survives_a_moment_without_nodes(loop: Loop) -> None:
    await ready(loop)
    plan = loop.status["plan"]["hash"]
    body = loop.api.objects[NODES].pop(("", "n1"))
    await loop.look()
    assert loop.condition("MemoryFits")[1] == "NoAccelerator"
    assert len(loop.engine_pods()) == 1 and loop.api.names(CONFIG_MAPS) == ["chat-plan"]
    loop.api.put(NODES, body)
    await loop.look()
    assert loop.status["plan"]["hash"] == plan and loop.condition("Ready")[0] == "True"


async def test_what_an_engine_measured_is_shown_beside_the_plan(loop: Loop) -> None:
    await ready(loop)
    terms = [
        {"name": "weights", "predictedBytes": 1000, "measuredBytes": 1100},
        {"name": "reserve", "predictedBytes": 50, "measuredBytes": None},
    ]
    kv = {"blockSize": 16, "numBlocks": 10, "capacityTokens": 160}
    loop.engines.ledgers[loop.status["plan"]["hash"]] = {"terms": terms, "kv": kv, "peakBytes": 7}
    await loop.look(times=2)
    measured = loop.status["measured"]
    assert (measured["kvTokens"], measured["errorPercent"]) == (160, "10.0")
    assert measured["terms"] == [{"name": "weights", "bytes": 1100, "predictedBytes": 1000}]
    loop.writes()
    loop.clock[0] += 60
    await loop.look()
    assert loop.writes() == []
