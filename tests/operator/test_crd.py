"""The CRD is what the models say, bounded everywhere, and its copies are the same."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from pagefleet_memory import Rejection
from pagefleet_operator.crd import build_crd, render_crd
from pagefleet_operator.fleet.measure import ledger_to_status
from pagefleet_operator.planning.backoff import Backoff
from pagefleet_operator.planning.serving_plan import PlanRefusal, ServingPlan
from pagefleet_operator.spec import CEL_RULES
from tests.operator.builders import cpu_plan, gpu_plan

ROOT = Path(__file__).resolve().parents[2]
VERSION = build_crd()["spec"]["versions"][0]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from nodes(part, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{path}[]")


FIELDS = [(path, node) for path, node in nodes(SCHEMA) if path.startswith((".spec", ".status"))]


@pytest.mark.parametrize("copy", ["crds", "charts/pagefleet/crds"])
def test_written_copies_are_generated(copy: str) -> None:
    written = (ROOT / copy / "inferencedeployments.yaml").read_text()
    assert written == render_crd(), "run `make crds`"


def test_file_is_yaml_of_the_crd() -> None:
    assert yaml.safe_load(render_crd()) == build_crd()


def test_every_field_has_a_description() -> None:
    silent = [path for path, node in FIELDS if not path.endswith("]") and "description" not in node]
    assert silent == []


def test_every_string_list_map_and_integer_is_bounded() -> None:
    bounds = {
        "string": ("maxLength", "enum"),
        "array": ("maxItems",),
        "integer": ("maximum", "enum", "format"),
    }
    unbounded = [
        path
        for path, node in FIELDS
        if (keys := bounds.get(node.get("type", ""))) and not any(key in node for key in keys)
    ]
    assert unbounded == []
    maps = [path for path, node in FIELDS if isinstance(node.get("additionalProperties"), dict)]
    assert all("maxProperties" in dict(FIELDS)[path] for path in maps)


def test_schema_is_structural() -> None:
    """No references, unions or null: the API server refuses or prunes such nodes."""
    for path, node in FIELDS:
        assert not {"$ref", "anyOf", "allOf", "oneOf", "default", "title"} & set(node), path
        assert "type" in node or node.get("x-kubernetes-int-or-string"), path


def test_every_rule_stands_at_its_path() -> None:
    for rule in CEL_RULES:
        node = SCHEMA["properties"]["spec"]
        for key in rule.path:
            node = node["properties"][key]
        found = {entry["rule"]: entry["message"] for entry in node["x-kubernetes-validations"]}
        assert found[rule.expression] == rule.message


def test_subresources() -> None:
    assert VERSION["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }


def test_conditions_are_a_map_by_type() -> None:
    conditions = SCHEMA["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]


def test_columns_read_fields_that_exist() -> None:
    fields = dict(FIELDS)
    for column in VERSION["additionalPrinterColumns"]:
        path = column["jsonPath"]
        assert path.startswith((".metadata.", ".status.conditions[")) or path in fields, path


def unknown_to_the_server(value: Any, schema: dict[str, Any], path: str) -> list[str]:
    """Fields that would be pruned, and required ones that are missing."""
    if isinstance(value, dict) and "properties" in schema:
        known, needed = set(schema["properties"]), set(schema.get("required", ()))
        wrong = [f"{path}.{name}" for name in (set(value) - known) | (needed - set(value))]
        for key in set(value) & known:
            wrong += unknown_to_the_server(value[key], schema["properties"][key], f"{path}.{key}")
        return wrong
    if isinstance(value, list):
        return [w for item in value for w in unknown_to_the_server(item, schema["items"], path)]
    return []


STEPPED = replace(gpu_plan(), backoff=Backoff("engine:1", 1, 0.9, "short by 1 GiB"))
REFUSAL = PlanRefusal("DoesNotFit", "no", (Rejection("one L4", "DoesNotFit", "short", 5),))


@pytest.mark.parametrize("plan", [gpu_plan(), cpu_plan(), STEPPED], ids=["gpu", "cpu", "stepped"])
def test_status_plan_has_no_field_that_the_server_would_prune(plan: ServingPlan) -> None:
    schema = SCHEMA["properties"]["status"]["properties"]
    assert unknown_to_the_server(plan.to_status(), schema["plan"], "plan") == []


def test_status_refusal_and_measured_have_none_either() -> None:
    schema = SCHEMA["properties"]["status"]["properties"]
    assert unknown_to_the_server(REFUSAL.to_status(), schema["refusal"], "refusal") == []
    terms = [{"name": "weights", "predictedBytes": 2, "measuredBytes": 3}]
    kv = {"blockSize": 16, "numBlocks": 10, "capacityTokens": 160}
    measured = ledger_to_status({"terms": terms, "kv": kv, "peakBytes": 7}, now=0.0)
    assert unknown_to_the_server(measured, schema["measured"], "measured") == []
