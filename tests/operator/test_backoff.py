"""Engines that run out of memory: a plan gives up a little, at most twice, and says so."""

from collections.abc import Mapping
from typing import Any

import pytest

from pagefleet_memory import ModelShape
from pagefleet_operator.kube.events import memory_steps
from pagefleet_operator.planning.backoff import out_of_memory_advice
from pagefleet_operator.planning.images import Images
from pagefleet_operator.planning.serving_plan import ServingPlan, make_serving_plan
from tests.operator.builders import (
    IMAGES,
    REVISION,
    cpu_node,
    gpu_node,
    infd,
    inventory,
    llama_8b,
    smollm2,
)

CPU = {"accelerator": "CPU"}
NODES = {"GPU": gpu_node("g"), "CPU": cpu_node("c")}


def plan(
    previous: Mapping[str, Any] | None = None,
    *,
    died: bool = False,
    images: Images = IMAGES,
    **spec: Any,
) -> ServingPlan:
    kind = spec.get("hardware", {}).get("accelerator", "GPU")
    shape: ModelShape = smollm2() if kind == "CPU" else llama_8b()
    found = make_serving_plan(
        infd(**spec),
        shape,
        REVISION,
        inventory(NODES[kind]),
        images,
        previous=previous,
        out_of_memory="pod p: short by 1 GiB" if died else None,
    )
    assert isinstance(found, ServingPlan), found
    return found


def utilization(found: ServingPlan) -> float:
    return found.limits.gpu_memory_utilization


@pytest.mark.parametrize(("spec", "step"), [({}, 0.03), ({"hardware": CPU}, 0.05)])
def test_two_steps_and_no_more(spec: dict[str, Any], step: float) -> None:
    first = plan(**spec)
    second = plan(first.to_status(), died=True, **spec)
    third = plan(second.to_status(), died=True, **spec)
    last = plan(third.to_status(), died=True, **spec)
    lowered = [round(utilization(first) - utilization(found), 4) for found in (second, third)]
    assert lowered == [step, round(2 * step, 4)]
    assert len({found.plan_hash for found in (first, second, third)}) == 3
    assert last.plan_hash == third.plan_hash and last.backoff.steps == 2
    assert "step 2 of 2" in third.to_status()["notes"][0]


def test_a_container_whose_memory_is_derived_grows() -> None:
    first = plan(hardware=CPU)
    second = plan(first.to_status(), died=True, hardware=CPU)
    assert second.memory.host_memory_bytes > first.memory.host_memory_bytes
    assert second.memory.kv_tokens >= first.memory.kv_tokens


def test_a_step_is_kept_while_nothing_else_changes() -> None:
    stepped = plan(plan().to_status(), died=True)
    kept = plan(stepped.to_status())
    assert kept.plan_hash == stepped.plan_hash and kept.backoff == stepped.backoff


def test_another_engine_or_another_question_starts_without_steps() -> None:
    stepped = plan(plan().to_status(), died=True).to_status()
    newer = Images(engine="registry/engine:2", operator=IMAGES.operator)
    upgraded = plan(stepped, died=True, images=newer)
    edited = plan(stepped, died=True, workload={"maxModelLen": 4096})
    assert upgraded.backoff.steps == edited.backoff.steps == 0
    assert utilization(upgraded) == utilization(edited) == utilization(plan())
    assert "backoff" not in upgraded.to_status()


def test_a_pinned_share_stays_and_the_advice_names_it() -> None:
    sizing = {"gpuMemoryUtilization": "0.9"}
    first = plan(sizing=sizing)
    again = plan(first.to_status(), died=True, sizing=sizing)
    assert again.plan_hash == first.plan_hash and again.backoff.steps == 0
    advice = out_of_memory_advice(infd(sizing=sizing).spec, again.backoff)
    assert "spec.sizing.gpuMemoryUtilization is set to 0.9" in advice


def test_what_would_not_fit_any_more_stays_as_it_is() -> None:
    tight = {"limits": {"minKVTokens": plan().memory.kv_tokens}}
    first = plan(sizing=tight)
    again = plan(first.to_status(), died=True, sizing=tight)
    assert again.plan_hash == first.plan_hash
    advice = out_of_memory_advice(infd(sizing=tight).spec, again.backoff)
    assert "does not fit" in advice and "maxModelLen" in advice


def test_memory_that_is_stated_stays() -> None:
    hardware = {**CPU, "memory": "3Gi"}
    first = plan(hardware=hardware)
    second = plan(first.to_status(), died=True, hardware=hardware)
    assert second.memory.host_memory_bytes == first.memory.host_memory_bytes == 3 << 30
    assert second.memory.kv_tokens < first.memory.kv_tokens


def test_each_step_is_told_once() -> None:
    first = plan().to_status()
    second = plan(first, died=True).to_status()
    told = memory_steps(first, second)
    assert [(event.reason, event.warning) for event in told] == [("MemoryLowered", True)]
    assert "lowered to" in told[0].note and "short by 1 GiB" in told[0].note
    assert memory_steps(second, second) == memory_steps(None, first) == []
    assert memory_steps(second, None) == []
