"""Large models on nodes with GPUs: the plan, the rendered pod and the node it lands on agree.

The nodes are simulated (KWOK), so no engine runs; the API server, the scheduler and the
LeaderWorkerSet controller are real, and so are the inspection pods that read the headers.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.cluster.gpu_nodes import GpuNodes
from e2e.stack import HUB_PORT, Stack
from e2e.support.deployments import on_gpu
from e2e.support.fleet import Fleet, engine_args
from e2e.support.hub import serving
from e2e.support.kubectl import Object
from e2e.support.virtual_model import LLAMA_8B, LLAMA_70B, LLAMA_405B

L4 = "NVIDIA-L4"
A100 = "NVIDIA-A100-SXM4-80GB"
H100 = "NVIDIA-H100-80GB-HBM3"
MODELS = {
    "example/llama-8b": LLAMA_8B,
    "example/llama-70b": LLAMA_70B,
    "example/llama-405b": LLAMA_405B,
}
PLANS: list[tuple[str, str, str, dict[str, int]]] = [
    ("small", "example/llama-8b", L4, {"tensor": 1, "pipeline": 1, "gpus": 1}),
    ("medium", "example/llama-70b", A100, {"tensor": 2, "pipeline": 1, "gpus": 2}),
    ("wide", "example/llama-8b", H100, {"tensor": 1, "pipeline": 1, "gpus": 1}),
]


@pytest.fixture(scope="module")
def hub(stack: Stack) -> Iterator[None]:
    """The models' headers, where the inspection pods look for them."""
    if not stack.is_local:
        pytest.skip("GPU nodes are simulated only on the local cluster")
    with serving(MODELS, host=stack.host_address, port=HUB_PORT):
        yield


@pytest.fixture(scope="module")
def gpu_fleet(stack: Stack, hub: None) -> Iterator[None]:
    """One node each with L4 and A100, two with eight H100."""
    nodes = GpuNodes(stack.kubectl)
    nodes.create(L4, gpus=1, count=1)
    nodes.create(A100, gpus=4, count=1)
    nodes.create(H100, gpus=8, count=2)
    yield
    nodes.delete_all()


@pytest.mark.parametrize(("name", "repository", "product", "expected"), PLANS)
def test_plan_reaches_the_pod_and_the_node(
    gpu_fleet: None,
    fleet: Fleet,
    name: str,
    repository: str,
    product: str,
    expected: dict[str, int],
) -> None:
    hardware = {"products": [product]}
    fleet.kubectl.apply(on_gpu(name, repository, hardware=hardware, workload={"maxModelLen": 8192}))
    plan = fleet.wait_ready(name)["status"]["plan"]

    assert plan["accelerator"]["product"] == product
    assert plan["chosen"]["tensorParallelSize"] == expected["tensor"]
    assert plan["chosen"]["pipelineParallelSize"] == expected["pipeline"]
    (pod,) = fleet.pods(name)
    _check_pod_follows(pod, plan, gpus=expected["gpus"])
    assert _product_of_node(fleet, pod) == product


def test_replica_that_spans_pods_is_a_leader_worker_set(gpu_fleet: None, fleet: Fleet) -> None:
    fleet.kubectl.apply(
        on_gpu(
            "giant",
            "example/llama-405b",
            hardware={"products": [H100]},
            workload={"maxModelLen": 4096},
        )
    )
    plan = fleet.wait_ready("giant", timeout=240)["status"]["plan"]

    assert plan["chosen"]["tensorParallelSize"] == 8
    assert plan["chosen"]["pipelineParallelSize"] == 2
    assert plan["accelerator"]["podsPerReplica"] == 2
    (group,) = fleet.kubectl.list("leaderworkersets.leaderworkerset.x-k8s.io")
    assert group["spec"]["leaderWorkerTemplate"]["size"] == 2
    pods = fleet.pods("giant")
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    for pod in pods:
        _check_pod_follows(pod, plan, gpus=8)


@pytest.fixture
def nodes_to_come(stack: Stack, hub: None) -> Iterator[GpuNodes]:
    """Nodes that a test adds; set up before the namespace, so removed after its pods."""
    nodes = GpuNodes(stack.kubectl)
    yield nodes
    nodes.delete("nvidia-h200-0")


def test_no_gpu_node_is_said_and_healed_when_one_appears(
    nodes_to_come: GpuNodes, fleet: Fleet
) -> None:
    hardware = {"products": ["NVIDIA-H200"]}
    fleet.kubectl.apply(
        on_gpu("later", "example/llama-8b", hardware=hardware, workload={"maxModelLen": 8192})
    )
    missing = fleet.wait_condition("later", "CapacityAvailable", status="False", timeout=120)
    assert "NVIDIA-H200" in missing["message"], missing
    nodes_to_come.create("NVIDIA-H200", gpus=1, count=1)
    fleet.wait_ready("later", timeout=120)


def _check_pod_follows(pod: Object, plan: dict[str, Any], *, gpus: int) -> None:
    args = engine_args(pod)
    chosen = plan["chosen"]
    assert int(args["--tensor-parallel-size"]) == chosen["tensorParallelSize"]
    assert int(args["--pipeline-parallel-size"]) == chosen["pipelineParallelSize"]
    assert float(args["--gpu-memory-utilization"]) == float(chosen["gpuMemoryUtilization"])
    assert int(args["--max-num-seqs"]) == chosen["maxNumSeqs"]
    assert int(args["--max-model-len"]) == chosen["maxModelLen"]
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    assert limits["nvidia.com/gpu"] == str(gpus)


def _product_of_node(fleet: Fleet, pod: Object) -> str:
    node = fleet.kubectl.get("node", pod["spec"]["nodeName"])
    assert node is not None
    return str(node["metadata"]["labels"]["nvidia.com/gpu.product"])
