"""The chart: its RBAC is what the operator does and no more, its values match their schema.

Rendering and lint need Helm, so the end-to-end tier does them.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from pagefleet_operator.kube.resources import (
    AUTOSCALERS,
    CHILDREN,
    EVENTS,
    INFERENCE_DEPLOYMENTS,
    LEASES,
    NODES,
    OPTIONAL_CHILDREN,
    PODS,
    Resource,
)
from pagefleet_operator.process.settings import Settings

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "pagefleet"
READ = {"get", "list"}
WRITE = {"create", "patch", "delete"}


def documents(name: str) -> Iterator[dict[str, Any]]:
    """A template's objects, with every template expression taken out."""
    text = (CHART / "templates" / name).read_text()
    text = re.sub(r"^\s*\{\{-.*\}\}\s*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\{\{.*?\}\}", "x", text)
    yield from (document for document in yaml.safe_load_all(text) if document)


def granted(name: str, kind: str) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for document in documents(name):
        for rule in document.get("rules", []) if document["kind"] == kind else []:
            for resource in rule["resources"]:
                found.setdefault((rule["apiGroups"][0], resource), set()).update(rule["verbs"])
    return found


def place(resource: Resource, subresource: str = "") -> tuple[str, str]:
    return resource.group, resource.plural + subresource


def test_the_operator_may_do_exactly_what_it_does() -> None:
    expected = {
        place(INFERENCE_DEPLOYMENTS): READ | {"watch"},
        place(INFERENCE_DEPLOYMENTS, "/status"): {"get", "patch"},
        place(INFERENCE_DEPLOYMENTS, "/finalizers"): {"update"},
        place(NODES): READ | {"watch"},
        place(PODS): READ | {"watch"} | WRITE,
        place(EVENTS): {"create"},
        place(AUTOSCALERS): {"list"},
        **{place(kind): READ | {"watch"} | WRITE for kind in CHILDREN},
        **{place(kind): READ | WRITE for kind in OPTIONAL_CHILDREN},
    }
    assert granted("clusterrole.yaml", "ClusterRole") == expected


def test_no_rule_is_wider_than_named_things() -> None:
    for (group, resource), verbs in granted("clusterrole.yaml", "ClusterRole").items():
        assert "*" not in {group, resource} | verbs
        assert resource not in ("secrets", "roles", "clusterroles", "pods/exec")


def test_the_election_is_about_one_lease_of_the_operators_namespace() -> None:
    assert granted("election.yaml", "Role") == {place(LEASES): {"get", "update"}}
    role = next(documents("election.yaml"))
    assert role["rules"][0]["resourceNames"] == ["pagefleet-operator"]
    assert next(documents("lease.yaml"))["metadata"]["name"] == "pagefleet-operator"


def test_the_operators_pod_is_restricted() -> None:
    spec = next(documents("deployment.yaml"))["spec"]["template"]["spec"]
    container = spec["containers"][0]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_every_value_is_in_the_schema_and_the_other_way_round() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert values.keys() == schema["properties"].keys() - {"global"}
    for part in ("images", "engine", "podMonitor"):
        assert values[part].keys() == schema["properties"][part]["properties"].keys()


def test_the_defaults_of_the_chart_are_those_of_the_operator() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    settings = Settings.from_env({})
    assert values["resyncSeconds"] == settings.resync_seconds
    assert values["autoscaleSeconds"] == settings.autoscale_seconds
    assert values["images"]["engine"] == settings.images.engine
    assert values["images"]["operator"] == settings.images.operator
