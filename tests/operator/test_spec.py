"""The custom resource is parsed once, and what is wrong is named: field, value, what would work."""

import re
from typing import Any

import pytest

from pagefleet_operator.errors import SpecError
from pagefleet_operator.spec import CEL_RULES, NAME_RULES, CelRule, InferenceDeployment, NameRule
from pagefleet_operator.spec.quantity import duration_seconds, parse_quantity
from tests.operator.builders import body, infd


@pytest.mark.parametrize("rule", CEL_RULES, ids=lambda rule: rule.name)
def test_each_rule_accepts_and_refuses(rule: CelRule) -> None:
    InferenceDeployment.parse({**body(), "spec": rule.accepted})
    with pytest.raises(SpecError) as refused:
        InferenceDeployment.parse({**body(), "spec": rule.refused})
    assert refused.value.field == rule.field
    assert rule.message in str(refused.value)


@pytest.mark.parametrize("rule", NAME_RULES, ids=lambda rule: rule.name)
def test_each_name_rule_accepts_and_refuses(rule: NameRule) -> None:
    assert infd(rule.accepted).name == rule.accepted
    with pytest.raises(SpecError, match=re.escape(rule.message)):
        infd(rule.refused)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"model": {}}, "spec.model.uri"),
        ({"model": {"uri": "hf://a/b", "dtype": "int4"}}, "spec.model.dtype"),
        ({"replicas": "2"}, "spec.replicas"),
        ({"replicas": True}, "spec.replicas"),
        ({"replicas": -1}, "spec.replicas"),
        ({"autoscaling": {"minReplicas": 0, "maxReplicas": 2}}, "spec.autoscaling.minReplicas"),
        ({"autoscaling": {}}, "spec.autoscaling.maxReplicas"),
        ({"sizing": {"gpuMemoryUtilization": 0.9}}, "spec.sizing.gpuMemoryUtilization"),
        ({"sizing": {"gpuMemoryUtilization": "1.2"}}, "spec.sizing.gpuMemoryUtilization"),
        ({"sizing": {"gpuMemoryUtilization": "0.00"}}, "spec.sizing.gpuMemoryUtilization"),
        ({"sizing": {"kvCache": {"blockSize": 24}}}, "spec.sizing.kvCache.blockSize"),
        ({"hardware": {"products": ["a"] * 17}}, "spec.hardware.products"),
        ({"workload": {"maxModelLen": 0}}, "spec.workload.maxModelLen"),
        ({"workload": {"tokens": 5}}, "spec.workload.tokens"),
        ({"suspend": "yes"}, "spec.suspend"),
    ],
)
def test_wrong_value_names_its_field(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as refused:
        infd(**spec)
    assert refused.value.field == field


def test_number_where_text_is_wanted_is_told_to_be_quoted() -> None:
    with pytest.raises(SpecError, match='quote it, as "0.9"'):
        infd(sizing={"gpuMemoryUtilization": 0.9})


@pytest.mark.parametrize("share", ["0.9", "0.90", "0.05", "0.9125", "1", "1.0"])
def test_shares_are_decimal_text(share: str) -> None:
    parsed = infd(sizing={"gpuMemoryUtilization": share}).spec.sizing
    assert parsed is not None and parsed.gpu_memory_utilization == share


def test_absent_fields_stay_absent() -> None:
    spec = infd().spec
    assert spec.model_dump(exclude_none=True, by_alias=True) == {
        "model": {"uri": "hf://example/model"}
    }
    assert spec.initial_replicas == 1
    assert spec.drain_seconds == 300


@pytest.mark.parametrize(
    ("spec", "replicas"),
    [
        ({"replicas": 0}, 0),
        ({"replicas": 3}, 3),
        ({"autoscaling": {"minReplicas": 2, "maxReplicas": 4}}, 2),
        ({"autoscaling": {"maxReplicas": 4}}, 1),
        ({"replicas": 3, "suspend": True}, 0),
    ],
)
def test_replicas_to_start_with(spec: dict[str, Any], replicas: int) -> None:
    assert infd(**spec).spec.initial_replicas == replicas


def test_folder_of_this_machine_is_for_local_runs_only() -> None:
    wanted = {**body(), "spec": {"model": {"uri": "file:///models/a"}}}
    assert InferenceDeployment.parse(wanted, local=True).spec.model.uri == "file:///models/a"
    with pytest.raises(SpecError, match="pagefleet run"):
        InferenceDeployment.parse(wanted)


def test_whole_cores_may_be_a_number() -> None:
    spec = infd(hardware={"accelerator": "CPU", "cpu": 2}).spec
    assert spec.hardware_or_default.cpu == "2"


def test_identity_and_status_are_kept() -> None:
    parsed = InferenceDeployment.parse({**body(), "status": {"replicas": 2}})
    assert (parsed.name, parsed.namespace, parsed.uid, parsed.generation) == (
        "demo",
        "team",
        "u1",
        3,
    )
    assert parsed.status == {"replicas": 2}
    assert parsed.served_model_name == "demo"
    assert not parsed.deleting


@pytest.mark.parametrize(
    ("text", "value"), [("500m", "0.5"), ("2", "2"), ("4Gi", str(4 << 30)), ("1.5k", "1500")]
)
def test_quantities(text: str, value: str) -> None:
    assert parse_quantity(text) == parse_quantity(value)


@pytest.mark.parametrize(("text", "seconds"), [("80ms", 0.08), ("2s", 2.0), ("5m", 300.0)])
def test_durations(text: str, seconds: float) -> None:
    assert duration_seconds(text) == seconds
