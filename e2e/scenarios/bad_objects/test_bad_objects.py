"""Bad objects: refused by the API server with the reason, or told in a condition; others go on.

The rules and their examples are the operator's own table, so the CEL in the CRD and the parser in
the operator are held to the same answers.
"""

import json
from typing import Any

import pytest

from e2e.support.deployments import inference_deployment
from e2e.support.fleet import Fleet
from e2e.support.kubectl import Kubectl
from pagefleet_operator.spec import CEL_RULES, NAME_RULES, CelRule, NameRule

GOOD = {"model": {"uri": "hf://example/model"}}

# Broken against the schema alone: what the answer must name.
SCHEMA_REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    ("no-model", {}, "spec.model"),
    ("wrong-type", {**GOOD, "replicas": "two"}, "spec.replicas"),
    ("below-zero", {**GOOD, "replicas": -1}, "spec.replicas"),
    ("scale-to-zero", {**GOOD, "autoscaling": {"minReplicas": 0, "maxReplicas": 2}}, "minReplicas"),
    ("float-share", {**GOOD, "sizing": {"gpuMemoryUtilization": 0.9}}, "gpuMemoryUtilization"),
    ("wrong-share", {**GOOD, "sizing": {"gpuMemoryUtilization": "1.5"}}, "gpuMemoryUtilization"),
    ("wrong-choice", {**GOOD, "hardware": {"accelerator": "TPU"}}, "accelerator"),
    ("unknown-field", {**GOOD, "replicaz": 1}, "replicaz"),
]


@pytest.mark.parametrize("rule", CEL_RULES, ids=lambda rule: rule.name)
def test_rule_is_kept_by_the_api_server(kubectl: Kubectl, rule: CelRule) -> None:
    assert rule.message in kubectl.refusal(inference_deployment("refused", rule.refused))
    _check_accepted(kubectl, inference_deployment("accepted", rule.accepted))


@pytest.mark.parametrize("rule", NAME_RULES, ids=lambda rule: rule.name)
def test_name_rule_is_kept_by_the_api_server(kubectl: Kubectl, rule: NameRule) -> None:
    assert rule.message in kubectl.refusal(inference_deployment(rule.refused, GOOD))
    _check_accepted(kubectl, inference_deployment(rule.accepted, GOOD))


@pytest.mark.parametrize(("name", "spec", "named"), SCHEMA_REFUSALS)
def test_schema_refuses_and_names_the_field(
    kubectl: Kubectl, name: str, spec: dict[str, Any], named: str
) -> None:
    assert named in kubectl.refusal(inference_deployment(name, spec))


def test_model_that_is_not_there_is_told_and_a_good_fleet_beside_it_serves(fleet: Fleet) -> None:
    missing = "registry.invalid/no/such-model:1"
    hardware = {"accelerator": "CPU", "cpu": "100m"}
    spec = {"model": {"uri": f"oci://{missing}"}, "hardware": hardware}
    fleet.kubectl.apply(inference_deployment("lost", spec))
    fleet.apply_on_cpu("good")

    told = fleet.wait_condition("lost", "ModelResolved", status="False", timeout=120)
    assert told["reason"] == "ImagePullFailed", told
    assert missing in told["message"], told
    fleet.wait_ready("good")


def test_edit_to_a_refused_value_leaves_the_object_as_it_was(kubectl: Kubectl) -> None:
    kubectl.apply(inference_deployment("steady", {**GOOD, "replicas": 0}))
    both = {**GOOD, "replicas": 0, "autoscaling": {"maxReplicas": 2}}
    edited = inference_deployment("steady", both)
    assert "replicas and autoscaling exclude each other" in kubectl.refusal(edited)
    kept = kubectl.get("infd", "steady")
    assert kept is not None and kept["metadata"]["generation"] == 1


def _check_accepted(kubectl: Kubectl, manifest: dict[str, Any]) -> None:
    """By a dry run, which starts nothing."""
    kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(manifest))
