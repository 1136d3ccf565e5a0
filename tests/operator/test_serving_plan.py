"""Plans: what they hold, what changes their hash, when they are kept, and how they refuse."""

from dataclasses import replace
from typing import Any

import pytest

from pagefleet_operator.planning.engine_args import replace_flags
from pagefleet_operator.planning.images import Images
from pagefleet_operator.planning.serving_plan import PlanRefusal, ServingPlan, make_serving_plan
from pagefleet_operator.spec.status_schema import InferenceDeploymentStatus
from tests.operator.builders import (
    A100,
    GIB,
    IMAGES,
    L4,
    REVISION,
    cpu_node,
    cpu_plan,
    gpu_node,
    gpu_plan,
    infd,
    inventory,
    llama_8b,
    llama_70b,
    smollm2,
)


def flags(plan: ServingPlan) -> dict[str, str]:
    words = [word for word in plan.engine_args if word != "--enforce-eager"]
    return dict(zip(words[::2], words[1::2], strict=True))


def plan_on(
    *nodes: dict[str, Any],
    previous: dict[str, Any] | None = None,
    spanning: bool = True,
    shape: Any = None,
    **spec: Any,
) -> ServingPlan | PlanRefusal:
    return make_serving_plan(
        infd(**spec),
        shape or llama_8b(),
        REVISION,
        inventory(*nodes),
        IMAGES,
        previous=previous,
        spanning=spanning,
    )


def must(plan: ServingPlan | PlanRefusal) -> ServingPlan:
    assert isinstance(plan, ServingPlan), plan
    return plan


def test_arguments_are_the_plan_in_the_engines_flags() -> None:
    plan = gpu_plan()
    limits, found = plan.limits, flags(plan)
    assert found["--tensor-parallel-size"] == str(limits.tensor_parallel_size)
    assert found["--max-num-seqs"] == str(limits.max_num_seqs)
    assert float(found["--gpu-memory-utilization"]) == limits.gpu_memory_utilization
    assert found["--device"] == "cuda"
    assert found["--served-model-name"] == "demo"
    assert "--device-memory-bytes" not in found


def test_cpu_plan_says_how_much_memory_there_is() -> None:
    plan = cpu_plan(hardware={"memory": "4Gi", "cpu": "1500m"})
    assert flags(plan)["--device-memory-bytes"] == str(4 * GIB)
    assert flags(plan)["--device"] == "cpu"
    assert (plan.memory.host_memory_bytes, plan.cpu) == (4 * GIB, "1500m")
    assert plan.gpus_per_pod == 0


def test_swap_space_is_refused_before_a_pod_starts() -> None:
    refusal = plan_on(gpu_node("a"), sizing={"kvCache": {"swapSpace": "1Gi"}})
    assert isinstance(refusal, PlanRefusal) and refusal.reason == "InvalidPin"
    assert refusal.message.startswith("spec.sizing.kvCache.swapSpace: 1Gi")
    assert "set it to 0" in refusal.message
    plan = must(plan_on(gpu_node("a"), sizing={"kvCache": {"swapSpace": "0"}}))
    assert flags(plan)["--swap-space"] == "0"


@pytest.mark.parametrize("plan", [gpu_plan(), cpu_plan()], ids=["gpu", "cpu"])
def test_ledger_in_status_adds_up_to_the_budget(plan: ServingPlan) -> None:
    for stage in plan.to_status()["ledger"]:
        assert sum(term["bytes"] for term in stage["terms"]) == stage["budgetBytes"]


def test_same_question_same_hash() -> None:
    assert gpu_plan().plan_hash == gpu_plan().plan_hash
    assert len(gpu_plan().plan_hash) == 8


@pytest.mark.parametrize(
    "spec",
    [
        {"replicas": 5},
        {"autoscaling": {"maxReplicas": 9}},
        {"rolloutStrategy": {"maxSurge": 2}},
        {"suspend": True},
        {"sizing": {"mode": "PlanOnly"}},
    ],
)
def test_what_restarts_no_engine_keeps_the_hash(spec: dict[str, Any]) -> None:
    assert gpu_plan(**spec).plan_hash == gpu_plan().plan_hash


@pytest.mark.parametrize(
    "spec",
    [
        {"workload": {"maxModelLen": 4096}},
        {"sizing": {"maxNumSeqs": 7}},
        {"sizing": {"gpuMemoryUtilization": "0.8"}},
        {"model": {"uri": "hf://example/model", "name": "other"}},
        {"model": {"uri": "hf://example/model", "secretName": "token"}},
        {"drain": {"timeoutSeconds": 20}},
    ],
)
def test_what_changes_a_pod_changes_the_hash(spec: dict[str, Any]) -> None:
    assert gpu_plan(**spec).plan_hash != gpu_plan().plan_hash


def test_engine_image_is_part_of_the_hash_and_the_operators_is_not() -> None:
    def hash_with(images: Images) -> str:
        nodes = inventory(gpu_node("a"))
        return must(make_serving_plan(infd(), llama_8b(), REVISION, nodes, images)).plan_hash

    assert hash_with(replace(IMAGES, operator="registry/operator:2")) == hash_with(IMAGES)
    assert hash_with(replace(IMAGES, engine="registry/engine:2")) != hash_with(IMAGES)


def test_revision_is_part_of_the_hash() -> None:
    nodes = inventory(gpu_node("a"))
    other = must(make_serving_plan(infd(), llama_8b(), "other", nodes, IMAGES))
    assert other.plan_hash != gpu_plan().plan_hash


def test_unrelated_node_does_not_change_a_kept_plan() -> None:
    workload = {"maxModelLen": 8192}
    first = must(plan_on(gpu_node("a"), workload=workload))
    nodes = (gpu_node("a"), gpu_node("b", "NVIDIA-H200"), gpu_node("c", L4, gpus=1))
    kept = must(plan_on(*nodes, previous=first.to_status(), workload=workload))
    assert kept.plan_hash == first.plan_hash
    assert first.rejected and kept.rejected == first.rejected


def test_kept_plan_goes_when_its_nodes_are_gone() -> None:
    first = must(plan_on(gpu_node("a"), workload={"maxModelLen": 8192}))
    moved = must(
        plan_on(
            gpu_node("c", L4, gpus=1), previous=first.to_status(), workload={"maxModelLen": 8192}
        )
    )
    assert moved.memory.accelerator.name == L4


def test_edit_of_the_spec_plans_anew() -> None:
    nodes = (gpu_node("a"), gpu_node("b", L4, gpus=1))
    on_a100 = must(plan_on(*nodes, hardware={"products": [A100]}))
    free = must(plan_on(*nodes, previous=on_a100.to_status(), workload={"maxModelLen": 8192}))
    fresh = must(plan_on(*nodes, workload={"maxModelLen": 8192}))
    assert free.plan_hash == fresh.plan_hash


def test_parallelism_is_kept_when_larger_nodes_come() -> None:
    workload = {"maxModelLen": 8192}
    first = must(plan_on(gpu_node("a", gpus=2), shape=llama_70b(), workload=workload))
    kept = must(
        plan_on(
            gpu_node("a", gpus=2),
            gpu_node("b", gpus=8),
            previous=first.to_status(),
            shape=llama_70b(),
            workload=workload,
        )
    )
    assert kept.limits.tensor_parallel_size == first.limits.tensor_parallel_size
    assert kept.plan_hash == first.plan_hash


def test_bfloat16_on_cpus_is_kept_only_while_every_node_has_it() -> None:
    def nodes(*fast: str) -> list[dict[str, Any]]:
        found = [cpu_node("a"), cpu_node("b")]
        for node in found:
            if node["metadata"]["name"] in fast:
                label = "feature.node.kubernetes.io/cpu-cpuid.AVX512BF16"
                node["metadata"]["labels"] = {label: "true"}
        return found

    hardware = {"accelerator": "CPU"}
    first = must(plan_on(*nodes("a", "b"), shape=smollm2(), hardware=hardware))
    assert (first.limits.dtype, first.needs_fast_bf16) == ("bfloat16", True)
    then = must(
        plan_on(*nodes("a"), shape=smollm2(), hardware=hardware, previous=first.to_status())
    )
    assert (then.limits.dtype, then.needs_fast_bf16) == ("float32", False)


def test_replica_spans_nodes_only_where_groups_of_pods_can_run() -> None:
    nodes = [gpu_node(name, L4, gpus=4) for name in "abcd"]
    workload = {"maxModelLen": 2048}
    spread = must(plan_on(*nodes, shape=llama_70b(), workload=workload))
    assert spread.pods_per_replica > 1
    assert spread.gpus_per_pod * spread.pods_per_replica == spread.memory.gpus_per_replica
    refused = plan_on(*nodes, shape=llama_70b(), workload=workload, spanning=False)
    assert isinstance(refused, PlanRefusal)
    assert "LeaderWorkerSet" in refused.message


def test_refusal_has_numbers_and_the_nearest_change() -> None:
    refused = plan_on(gpu_node("a", L4, gpus=1), shape=llama_70b())
    assert isinstance(refused, PlanRefusal)
    assert refused.reason == "DoesNotFit"
    assert "GiB" in refused.message
    assert refused.rejected and refused.rejected[0].short_by_bytes


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"sizing": {"parallelism": {"tensor": 3}}}, "tensor"),
        ({"workload": {"maxModelLen": 10_000_000}}, "max"),
    ],
)
def test_pin_that_cannot_be_is_refused_and_named(spec: dict[str, Any], named: str) -> None:
    refused = plan_on(gpu_node("a"), **spec)
    assert isinstance(refused, PlanRefusal)
    assert named in refused.message.lower()


def test_refusal_in_status_lists_changes_and_rejected_plans() -> None:
    refused = plan_on(gpu_node("a", L4, gpus=1), shape=llama_70b())
    assert isinstance(refused, PlanRefusal)
    status = refused.to_status()
    assert "8x NVIDIA-L4 (TP=8, PP=1) fits" in status["nearest"]
    assert InferenceDeploymentStatus.model_validate({"refusal": status})


def test_status_of_a_plan_has_predicted_speeds_where_the_gpu_is_known() -> None:
    known, cpu = gpu_plan().to_status(), cpu_plan().to_status()
    assert known["predictedDecodeTokensPerSecond"] > 1000
    assert known["predictedPrefillTokensPerSecond"] > 1000
    assert float(known["predictedStepMilliseconds"]) > 1
    assert not [key for key in cpu if key.startswith("predicted")]
    assert InferenceDeploymentStatus.model_validate({"plan": known})


@pytest.mark.parametrize("name", ["int8", "int8k_int4v", "int4", "fp8_e4m3"])
def test_every_cache_format_of_the_spec_is_planned(name: str) -> None:
    def plan(dtype: str) -> ServingPlan:
        node = gpu_node("a", "NVIDIA-H200")
        return must(plan_on(node, sizing={"kvCache": {"dtype": dtype}}, workload=workload))

    workload = {"maxModelLen": 8192}
    assert flags(plan(name))["--kv-cache-dtype"] == name
    assert plan(name).memory.kv_tokens > 1.5 * plan("auto").memory.kv_tokens
    assert any("4-bit" in note for note in plan(name).memory.notes) == (name == "int4")


def test_missing_product_is_refused_with_what_there_is() -> None:
    refused = plan_on(gpu_node("a"), hardware={"products": ["NVIDIA-H200"]})
    assert isinstance(refused, PlanRefusal)
    assert refused.reason == "NoAccelerator"
    assert "NVIDIA-H200" in refused.message and A100 in refused.message


def test_cluster_without_gpus_points_to_the_cpu() -> None:
    refused = plan_on(cpu_node("a"))
    assert isinstance(refused, PlanRefusal)
    assert "spec.hardware.accelerator: CPU" in refused.message


def test_memory_that_no_node_has_is_a_question_of_capacity() -> None:
    hardware = {"accelerator": "CPU", "memory": "900Gi"}
    assert must(plan_on(cpu_node("a"), shape=smollm2(), hardware=hardware))


def test_flags_can_be_replaced_by_name() -> None:
    assert replace_flags(("--model", "/model", "--port", "8000"), model="/here") == (
        "--model",
        "/here",
        "--port",
        "8000",
    )
