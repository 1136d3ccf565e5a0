"""The inspection pod, its answer, and every way in which there is none."""

import json
from typing import Any

import pytest

from pagefleet_operator.kube.capabilities import Capabilities
from pagefleet_operator.manifests.names import inspection_key
from pagefleet_operator.model.inspection import (
    build_inspection_pod,
    read_inspection,
    shape_from_status,
)
from tests.operator.builders import IMAGES, infd, smollm2


def ended(message: str | None, *, code: int = 0) -> dict[str, Any]:
    terminated: dict[str, Any] = {"exitCode": code}
    if message is not None:
        terminated["message"] = message
    state = {"terminated": terminated}
    phase = "Failed" if code else "Succeeded"
    return {"status": {"phase": phase, "containerStatuses": [{"name": "inspect", "state": state}]}}


def waiting(reason: str, *, init: bool = False) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": "not found"}}
    statuses = [{"name": "model", "image": "registry/no:1", "state": state}]
    key = "initContainerStatuses" if init else "containerStatuses"
    return {"status": {"phase": "Pending", key: statuses}}


def test_answer_gives_the_shape_back() -> None:
    answer = json.dumps({"shape": smollm2().to_summary(), "revision": "abc"})
    found = read_inspection(ended(answer))
    assert (found.state, found.revision) == ("Succeeded", "abc")
    assert found.shape == smollm2()


def test_error_keeps_its_reason() -> None:
    answer = json.dumps({"error": {"reason": "ModelNotFound", "message": "no such model"}})
    found = read_inspection(ended(answer, code=1))
    assert (found.state, found.reason, found.message) == (
        "Failed",
        "ModelNotFound",
        "no such model",
    )


@pytest.mark.parametrize("answer", ["Traceback ...", "{}", '{"shape": {}}', '{"error": 3}', "[]"])
def test_unreadable_answer_is_a_failure_and_no_crash(answer: str) -> None:
    found = read_inspection(ended(answer))
    assert (found.state, found.reason) == ("Failed", "InspectionUnreadable")


@pytest.mark.parametrize(
    ("pod", "state", "reason"),
    [
        ({}, "Pending", "Inspecting"),
        ({"status": {"phase": "Running"}}, "Pending", "Inspecting"),
        (waiting("ImagePullBackOff", init=True), "Pending", "ImagePullFailed"),
        (waiting("CreateContainerConfigError"), "Pending", "PodConfigInvalid"),
        (waiting("ContainerCreating"), "Pending", "Inspecting"),
        (ended(None, code=137), "Failed", "InspectionFailed"),
        (
            {"status": {"phase": "Failed", "reason": "DeadlineExceeded", "message": "too slow"}},
            "Failed",
            "DeadlineExceeded",
        ),
        (
            {
                "status": {
                    "phase": "Pending",
                    "conditions": [
                        {
                            "type": "PodScheduled",
                            "status": "False",
                            "message": 'claim "x" not found',
                        }
                    ],
                }
            },
            "Pending",
            "InspectionUnschedulable",
        ),
    ],
)
def test_pod_without_an_answer(pod: dict[str, Any], state: str, reason: str) -> None:
    found = read_inspection(pod)
    assert (found.state, found.reason) == (state, reason)
    assert found.message


def test_copy_of_the_model_that_fails_is_told_apart() -> None:
    state = {"terminated": {"exitCode": 1, "message": "cp: not found"}}
    pod = {
        "status": {"phase": "Failed", "initContainerStatuses": [{"name": "model", "state": state}]}
    }
    found = read_inspection(pod)
    assert (found.reason, "cp: not found" in found.message) == ("ModelCopyFailed", True)


def test_hub_model_is_read_over_the_network_with_its_token() -> None:
    model = {"uri": "hf://a/b", "revision": "v1", "secretName": "token"}
    pod = build_inspection_pod(infd(model=model), IMAGES)
    (container,) = pod["spec"]["containers"]
    assert container["command"][2:] == [
        "pagefleet_operator.inspect",
        "--uri",
        "hf://a/b",
        "--revision",
        "v1",
    ]
    reference = {"secretKeyRef": {"name": "token", "key": "HF_TOKEN"}}
    assert {"name": "HF_TOKEN", "valueFrom": reference} in container["env"]
    assert "initContainers" not in pod["spec"]


def test_image_is_mounted_where_the_cluster_can_and_copied_in_part_where_not() -> None:
    wanted = infd(model={"uri": "oci://registry/model:1"})
    copied = build_inspection_pod(wanted, IMAGES)["spec"]
    assert copied["initContainers"][0]["image"] == "registry/model:1"
    assert "--headers-only" in copied["containers"][0]["command"]
    mounted = build_inspection_pod(wanted, IMAGES, Capabilities(image_volume=True))["spec"]
    assert mounted["volumes"][0]["image"]["reference"] == "registry/model:1"
    assert "--headers-only" not in mounted["containers"][0]["command"]


def test_claim_is_mounted_read_only_at_its_path() -> None:
    pod = build_inspection_pod(infd(model={"uri": "pvc://models/llama/8b"}), IMAGES)["spec"]
    assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
    mount = pod["containers"][0]["volumeMounts"][0]
    assert (mount["subPath"], mount["readOnly"]) == ("llama/8b", True)


def test_pod_is_owned_restricted_and_without_rights() -> None:
    pod = build_inspection_pod(infd(), IMAGES)
    assert pod["metadata"]["ownerReferences"][0]["controller"] is True
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


def test_kept_shape_is_used_for_the_same_model_only() -> None:
    key = inspection_key(infd(), IMAGES)
    model = {"key": key, "shape": smollm2().to_summary(), "revision": "abc"}
    kept = shape_from_status({"model": model}, key=key)
    assert kept is not None and kept.shape == smollm2()
    assert shape_from_status({"model": model}, key="other") is None
    assert shape_from_status({"model": {**model, "shape": {"future": 1}}}, key=key) is None


def test_another_uri_revision_or_operator_asks_again() -> None:
    newer = type(IMAGES)(engine=IMAGES.engine, operator="registry/operator:2")
    keys = {
        inspection_key(infd(), IMAGES),
        inspection_key(infd(model={"uri": "hf://a/c"}), IMAGES),
        inspection_key(infd(model={"uri": "hf://example/model", "revision": "v2"}), IMAGES),
        inspection_key(infd(), newer),
    }
    assert len(keys) == 4
