"""The children of an InferenceDeployment: valid, owned, restricted, and exactly the plan.

kubernetes-validate holds each core object against the published schemas; LeaderWorkerSet and
PodMonitor are foreign kinds, whose fields are checked by hand.
"""

from dataclasses import replace
from typing import Any

import kubernetes_validate
import pytest

from pagefleet_operator.kube.capabilities import Capabilities
from pagefleet_operator.manifests import build_manifests
from pagefleet_operator.manifests.names import selector_labels, selector_text, server_selector
from pagefleet_operator.manifests.placement import pod_resources
from pagefleet_operator.model.inspection import build_inspection_pod
from pagefleet_operator.planning.inventory import pod_requests
from pagefleet_operator.planning.serving_plan import ServingPlan, make_serving_plan
from pagefleet_operator.spec import InferenceDeployment
from tests.operator.builders import (
    A100,
    IMAGES,
    L4,
    REVISION,
    cpu_plan,
    gpu_node,
    gpu_plan,
    infd,
    inventory,
    llama_70b,
)

ALL = Capabilities(image_volume=True, lws=True, pod_monitor=True)
FOREIGN = ("LeaderWorkerSet", "PodMonitor")
CPU = {"accelerator": "CPU"}


def spread_plan() -> ServingPlan:
    nodes = inventory(*(gpu_node(name, L4, gpus=4) for name in "abcd"))
    spec = infd(workload={"maxModelLen": 2048})
    plan = make_serving_plan(spec, llama_70b(), REVISION, nodes, IMAGES)
    assert isinstance(plan, ServingPlan), plan
    return plan


def manifests(
    of: InferenceDeployment, plan: ServingPlan, *, capabilities: Capabilities = ALL
) -> dict[str, dict[str, Any]]:
    built = build_manifests(of, plan, replicas=2, capabilities=capabilities, images=IMAGES)
    return {f"{item['kind']}/{item['metadata']['name']}": item for item in built}


def deployment(of: InferenceDeployment, plan: ServingPlan, **more: Any) -> dict[str, Any]:
    return manifests(of, plan, **more)[f"Deployment/{of.name}-{plan.plan_hash}"]


def pod_spec(workload: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = workload["spec"]["template"]["spec"]
    return found


CASES = {
    "hub on a GPU": (infd(), gpu_plan()),
    "image on a CPU": (
        infd(model={"uri": "oci://registry/model:1"}, hardware=CPU),
        cpu_plan(model={"uri": "oci://registry/model:1"}),
    ),
    "claim on a CPU": (
        infd(model={"uri": "pvc://models/a"}, hardware=CPU),
        cpu_plan(model={"uri": "pvc://models/a"}),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
@pytest.mark.parametrize("capabilities", [ALL, Capabilities()], ids=["all", "core"])
def test_objects_are_valid(
    case: tuple[InferenceDeployment, ServingPlan], capabilities: Capabilities
) -> None:
    of, plan = case
    for item in manifests(of, plan, capabilities=capabilities).values():
        if item["kind"] not in FOREIGN:
            kubernetes_validate.validate(item, "1.35", strict=True)
    kubernetes_validate.validate(
        build_inspection_pod(of, IMAGES, capabilities), "1.35", strict=True
    )


def test_what_a_fleet_consists_of() -> None:
    plan = gpu_plan()
    assert list(manifests(infd(), plan)) == [
        "ServiceAccount/demo",
        "NetworkPolicy/demo",
        "PodDisruptionBudget/demo",
        "Service/demo",
        "Service/demo-pods",
        "ConfigMap/demo-plan",
        "PodMonitor/demo",
        f"Deployment/demo-{plan.plan_hash}",
    ]
    assert "PodMonitor/demo" not in manifests(infd(), plan, capabilities=Capabilities())


def test_everything_is_owned_and_labelled() -> None:
    for item in manifests(infd(), gpu_plan()).values():
        metadata = item["metadata"]
        assert metadata["ownerReferences"] == [
            {
                "apiVersion": "pagefleet.io/v1alpha1",
                "kind": "InferenceDeployment",
                "name": "demo",
                "uid": "u1",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
        assert metadata["namespace"] == "team"
        assert metadata["labels"]["app.kubernetes.io/managed-by"] == "pagefleet-operator"
        assert metadata["labels"]["pagefleet.io/inference-deployment"] == "demo"


def test_longest_name_leaves_valid_child_names() -> None:
    longest = infd("a" * 40)
    for item in manifests(longest, gpu_plan()).values():
        assert len(item["metadata"]["name"]) <= 63
        assert all(len(value) <= 63 for value in item["metadata"]["labels"].values())
    assert len(build_inspection_pod(longest, IMAGES)["metadata"]["name"]) <= 63


def test_pods_meet_the_restricted_standard() -> None:
    for of, plan in CASES.values():
        spec = pod_spec(deployment(of, plan, capabilities=Capabilities()))
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["readOnlyRootFilesystem"] is True


def test_engine_gets_exactly_the_plans_arguments() -> None:
    plan = gpu_plan()
    (engine,) = pod_spec(deployment(infd(), plan))["containers"]
    assert tuple(engine["args"]) == plan.engine_args
    assert engine["image"] == IMAGES.engine


def test_gpu_pod_asks_for_its_devices_on_the_planned_product() -> None:
    plan = gpu_plan(sizing={"parallelism": {"tensor": 4}})
    spec = pod_spec(deployment(infd(), plan))
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert spec["nodeSelector"] == {"nvidia.com/gpu.product": A100}
    assert spec["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]


def test_cpu_pod_is_limited_to_the_memory_that_the_plan_divides() -> None:
    of = infd(hardware={**CPU, "nodeSelector": {"zone": "a"}})
    plan = cpu_plan(hardware={"memory": "3Gi", "cpu": "1500m"})
    spec = pod_spec(deployment(of, plan))
    (engine,) = spec["containers"]
    assert engine["resources"]["requests"] == {"cpu": "1500m", "memory": str(3 << 30)}
    assert engine["resources"]["limits"] == {"memory": str(3 << 30)}
    assert {"name": "OMP_NUM_THREADS", "value": "2"} in engine["env"]
    assert spec["nodeSelector"] == {"zone": "a"}
    assert "tolerations" not in spec


@pytest.mark.parametrize("plan", [gpu_plan(), cpu_plan()], ids=["gpu", "cpu"])
def test_capacity_counts_what_the_scheduler_will(plan: ServingPlan) -> None:
    of = infd() if plan.on_gpu else infd(hardware=CPU)
    template = deployment(of, plan)["spec"]["template"]
    assert pod_requests(template) == pod_resources(plan)


def test_probes_and_grace_come_from_the_plan() -> None:
    plan = gpu_plan()
    spec = pod_spec(deployment(infd(drain={"timeoutSeconds": 45}), plan))
    (engine,) = spec["containers"]
    startup, ready = engine["startupProbe"], engine["readinessProbe"]
    assert startup["failureThreshold"] * startup["periodSeconds"] >= plan.memory.startup_seconds
    assert (ready["httpGet"]["path"], ready["periodSeconds"]) == ("/ready", 2)
    assert engine["livenessProbe"]["httpGet"]["path"] == "/health"
    assert spec["terminationGracePeriodSeconds"] == 75


def test_template_matches_its_selectors() -> None:
    plan = gpu_plan()
    workload = deployment(infd(), plan)
    labels = workload["spec"]["template"]["metadata"]["labels"]
    for selector in (
        workload["spec"]["selector"]["matchLabels"],
        selector_labels(infd()),
        server_selector(infd()),
        dict(part.split("=") for part in selector_text(infd()).split(",")),
    ):
        assert selector.items() <= labels.items()
    assert labels["pagefleet.io/plan-hash"] == plan.plan_hash


def test_inspection_pod_is_selected_by_no_service_or_budget() -> None:
    labels = build_inspection_pod(infd(), IMAGES)["metadata"]["labels"]
    assert not selector_labels(infd()).items() <= labels.items()


def test_hub_model_is_downloaded_at_the_inspected_commit() -> None:
    of = infd(model={"uri": "hf://a/b", "revision": "main", "secretName": "token"})
    (download,) = pod_spec(deployment(of, gpu_plan()))["initContainers"]
    assert download["command"][3:] == ["--repo", "a/b", "--revision", REVISION, "--dest", "/model"]
    assert download["image"] == IMAGES.engine
    assert any(entry["name"] == "HF_TOKEN" for entry in download["env"])


def test_image_model_is_mounted_or_copied() -> None:
    of, plan = CASES["image on a CPU"]
    mounted = pod_spec(deployment(of, plan))
    assert mounted["volumes"][0]["image"]["reference"] == "registry/model:1"
    assert "initContainers" not in mounted
    (copy,) = pod_spec(deployment(of, plan, capabilities=Capabilities()))["initContainers"]
    assert copy["command"] == ["cp", "-R", "/model/.", "/dest/"]


def test_network_policy_opens_the_api_port_and_the_fleets_own_traffic() -> None:
    policy = manifests(infd(), gpu_plan())["NetworkPolicy/demo"]["spec"]
    api, own = policy["ingress"]
    assert api["ports"] == [{"protocol": "TCP", "port": 8000}]
    assert own["from"] == [{"podSelector": policy["podSelector"]}]


def test_replica_that_spans_pods_is_a_group_of_leader_and_workers() -> None:
    plan = spread_plan()
    group = manifests(infd(), plan)[f"LeaderWorkerSet/demo-{plan.plan_hash}"]["spec"]
    template = group["leaderWorkerTemplate"]
    leader, worker = template["leaderTemplate"], template["workerTemplate"]
    assert (group["replicas"], template["size"]) == (2, plan.pods_per_replica)
    assert template["restartPolicy"] == "RecreateGroupOnPodRestart"
    assert server_selector(infd()).items() <= leader["metadata"]["labels"].items()
    assert not server_selector(infd()).items() <= worker["metadata"]["labels"].items()
    assert selector_labels(infd()).items() <= worker["metadata"]["labels"].items()
    for part in (leader, worker):
        (engine,) = part["spec"]["containers"]
        assert engine["resources"]["limits"]["nvidia.com/gpu"] == str(plan.gpus_per_pod)
        assert {"name": "MASTER_ADDR", "value": "$(LWS_LEADER_ADDRESS)"} in engine["env"]
    assert "readinessProbe" in leader["spec"]["containers"][0]
    assert "readinessProbe" not in worker["spec"]["containers"][0]


def test_replicas_may_be_given_by_plan() -> None:
    plan = gpu_plan()
    for sizes, expected in (({plan.plan_hash: 4, "other": 1}, 4), ({"other": 1}, 0)):
        built = build_manifests(infd(), plan, replicas=sizes, capabilities=ALL, images=IMAGES)
        assert built[-1]["spec"]["replicas"] == expected


def test_engine_and_inspection_pods_pull_with_the_secrets_that_the_chart_names() -> None:
    images = replace(IMAGES, pull_secrets=("first", "second"))
    of, plan = infd(hardware=CPU), cpu_plan()
    built = build_manifests(of, plan, replicas=1, capabilities=ALL, images=images)
    workload = next(item for item in built if item["kind"] == "Deployment")
    wanted = [{"name": "first"}, {"name": "second"}]
    assert pod_spec(workload)["imagePullSecrets"] == wanted
    assert build_inspection_pod(of, images)["spec"]["imagePullSecrets"] == wanted
    assert "imagePullSecrets" not in pod_spec(deployment(of, plan))
