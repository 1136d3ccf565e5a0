"""Nodes become groups for the planner (in all) and room for pods (free now)."""

from typing import Any

import pytest

from pagefleet_operator.planning.inventory import Resources, pod_requests
from tests.operator.builders import A100, GIB, L4, cpu_node, gpu_node, infd, inventory, pod


def test_alike_nodes_are_one_group() -> None:
    found = inventory(
        gpu_node("a"), gpu_node("b"), gpu_node("c", gpus=4), gpu_node("d", L4, gpus=1)
    ).node_groups(infd().spec)
    assert [(group.name, group.nodes) for group in found] == [
        (f"{A100} x4", 1),
        (f"{A100} x8", 2),
        (f"{L4} x1", 1),
    ]
    assert [group.nvlink for group in found] == [True, True, False]


def test_products_and_labels_narrow_the_candidates() -> None:
    nodes = inventory(gpu_node("a"), gpu_node("b", L4, gpus=1))
    groups = nodes.node_groups(infd(hardware={"products": [L4]}).spec)
    assert [group.accelerator.name for group in groups] == [L4]
    assert nodes.node_groups(infd(hardware={"nodeSelector": {"zone": "x"}}).spec) == ()


@pytest.mark.parametrize(
    ("taint", "admitted"),
    [
        ({"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}, True),
        ({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}, True),
        ({"key": "team", "effect": "NoSchedule"}, False),
        ({"key": "team", "effect": "PreferNoSchedule"}, True),
    ],
)
def test_a_node_that_is_down_for_now_still_counts_for_plans(
    taint: dict[str, str], admitted: bool
) -> None:
    node = gpu_node("a", taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}, taint])
    assert bool(inventory(node).node_groups(infd().spec)) is admitted


def test_not_ready_and_cordoned_nodes_take_no_pods_now() -> None:
    down = gpu_node("a")
    down["status"]["conditions"][0]["status"] = "False"
    nodes = inventory(down, gpu_node("b", unschedulable=True)).nodes
    assert [node.available for node in nodes] == [False, False]


def test_gpus_of_a_restarting_device_plugin_are_still_there_by_label() -> None:
    node = gpu_node("a")
    node["status"]["capacity"]["nvidia.com/gpu"] = "0"
    node["status"]["allocatable"]["nvidia.com/gpu"] = "0"
    found = inventory(node).nodes[0]
    assert (found.total.gpus, found.free.gpus) == (8, 0)


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ({}, "nvidia.com/gpu.product"),
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-SHARED"}, "time-shared"),
        ({"nvidia.com/gpu.product": "Unheard-Of"}, "nvidia.com/gpu.memory"),
    ],
)
def test_gpus_that_no_plan_can_use_are_explained(labels: dict[str, str], why: str) -> None:
    node = gpu_node("a")
    node["metadata"]["labels"] = labels
    found = inventory(node)
    assert found.node_groups(infd().spec) == ()
    assert why in found.unusable_gpus()[0]


def test_mig_slices_of_one_resource_are_small_gpus() -> None:
    node = gpu_node("a", "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb", gpus=16)
    node["metadata"]["labels"]["nvidia.com/gpu.memory"] = "20096"
    (group,) = inventory(node).node_groups(infd().spec)
    assert (group.accelerators_per_node, group.nvlink) == (16, False)
    assert group.accelerator.mig_profile == "3g.20gb"


def test_mig_slices_of_their_own_resources_are_explained() -> None:
    node = gpu_node("a", gpus=0)
    node["metadata"]["labels"]["nvidia.com/gpu.count"] = "8"
    node["status"]["capacity"]["nvidia.com/mig-3g.40gb"] = "16"
    found = inventory(node)
    assert found.node_groups(infd().spec) == ()
    assert "nvidia.com/mig-3g.40gb" in found.unusable_gpus()[0]


def test_memory_that_contradicts_the_product_is_explained() -> None:
    node = gpu_node("a", L4)
    node["metadata"]["labels"]["nvidia.com/gpu.memory"] = "81559"
    assert "81559 MiB contradicts the product NVIDIA-L4" in inventory(node).unusable_gpus()[0]


def test_cpu_pods_stay_off_gpu_nodes() -> None:
    spec = infd(hardware={"accelerator": "CPU"}).spec
    (group,) = inventory(gpu_node("a"), cpu_node("b"), cpu_node("c", memory="32Gi")).node_groups(
        spec
    )
    assert (group.nodes, group.accelerator.memory_bytes) == (2, 32 * GIB)


@pytest.mark.parametrize(("labelled", "fast"), [(("b",), False), (("b", "c"), True)])
def test_bfloat16_counts_as_fast_when_every_candidate_has_it(
    labelled: tuple[str, ...], fast: bool
) -> None:
    nodes = [cpu_node("b"), cpu_node("c")]
    for node in nodes:
        if node["metadata"]["name"] in labelled:
            node["metadata"]["labels"] = {"feature.node.kubernetes.io/cpu-cpuid.AMXBF16": "true"}
    (group,) = inventory(*nodes).node_groups(infd(hardware={"accelerator": "CPU"}).spec)
    assert group.accelerator.bf16 is fast


def test_running_pods_take_room_and_finished_ones_do_not() -> None:
    done = pod("done", node="a", gpus="4")
    done["status"]["phase"] = "Succeeded"
    pods = (pod("p", node="a", gpus="2", cpu="4", memory="8Gi"), done, pod("waiting", gpus="8"))
    (node,) = inventory(gpu_node("a"), pods=pods).nodes
    assert node.free == Resources(gpus=6, cpu_millis=92_000, memory_bytes=1016 * GIB)


def test_pod_reserves_its_containers_or_its_largest_init_container() -> None:
    def container(cpu: str, **more: Any) -> dict[str, Any]:
        return {"name": cpu, "resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "containers": [container("1"), container("500m")],
        "initContainers": [container("2"), container("250m", restartPolicy="Always")],
    }
    assert pod_requests({"spec": spec}).cpu_millis == 2000


def test_limits_stand_in_for_requests() -> None:
    spec = {"containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]}
    assert pod_requests({"spec": spec}).gpus == 2
