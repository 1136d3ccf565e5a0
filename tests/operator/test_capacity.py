"""Whether replicas find a place now, and what is said when they do not."""

from pagefleet_operator.manifests.names import OWNER_LABEL, PLAN_HASH_LABEL
from pagefleet_operator.planning.capacity import check_capacity
from tests.operator.builders import (
    A100,
    cpu_node,
    cpu_plan,
    gpu_node,
    gpu_plan,
    infd,
    inventory,
    pod,
)

PLAN = gpu_plan(sizing={"parallelism": {"tensor": 2}})
OTHER = {OWNER_LABEL: "demo", PLAN_HASH_LABEL: "00000000"}
OWN = {OWNER_LABEL: "demo", PLAN_HASH_LABEL: PLAN.plan_hash}


def test_room_is_counted_node_by_node() -> None:
    nodes = inventory(gpu_node("a", gpus=3), gpu_node("b", gpus=5))
    found = check_capacity(infd(), PLAN, 3, nodes, [])
    assert (found.ok, found.fits_replicas, found.room) == (True, 3, 3)


def test_shortfall_names_need_best_node_and_what_is_missing() -> None:
    foreign = pod("foreign", node="a", gpus="7", cpu="1", memory="1Gi")
    found = check_capacity(infd(), PLAN, 2, inventory(gpu_node("a"), pods=(foreign,)), [foreign])
    assert not found.ok
    assert "2 replicas wanted, 0 fit" in found.message
    assert f"2 {A100}" in found.message
    assert "the best node, a, has 1" in found.message
    assert "short of 1 GPUs" in found.message


def test_own_running_pods_count_as_fitting() -> None:
    running = pod("p", node="a", labels=OWN, gpus="2")
    found = check_capacity(
        infd(), PLAN, 1, inventory(gpu_node("a", gpus=2), pods=(running,)), [running]
    )
    assert (found.ok, found.fits_replicas, found.room) == (True, 1, 0)


def test_pods_of_an_older_plan_make_place_but_give_no_room_now() -> None:
    old = pod("old", node="a", labels=OTHER, gpus="2")
    found = check_capacity(infd(), PLAN, 1, inventory(gpu_node("a", gpus=2), pods=(old,)), [old])
    assert (found.ok, found.fits_replicas, found.room) == (True, 1, 0)


def test_nodes_that_take_no_pods_and_other_products_do_not_count() -> None:
    nodes = inventory(gpu_node("a", unschedulable=True), gpu_node("b", "NVIDIA-H200"))
    found = check_capacity(infd(), PLAN, 1, nodes, [])
    assert (found.ok, found.room) == (False, 0)
    assert "no node that could hold it is ready" in found.message


def test_cpu_pods_need_cores_and_memory() -> None:
    plan = cpu_plan(hardware={"memory": "4Gi", "cpu": "3"})
    spec = infd(hardware={"accelerator": "CPU"})
    found = check_capacity(spec, plan, 3, inventory(cpu_node("a", cpu="8", memory="16Gi")), [])
    assert (found.ok, found.fits_replicas) == (False, 2)
    assert (
        "short of 1 cores"
        in check_capacity(spec, plan, 1, inventory(cpu_node("a", cpu="2")), []).message
    )
