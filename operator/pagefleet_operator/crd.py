"""The CustomResourceDefinition, generated from the models: python -m pagefleet_operator.crd."""

import copy
import sys
from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import BaseModel

from pagefleet_operator.spec import (
    CEL_RULES,
    GROUP,
    KIND,
    NAME_RULES,
    PLURAL,
    VERSION,
    CelRule,
    InferenceDeploymentSpec,
    NameRule,
)
from pagefleet_operator.spec.status_schema import InferenceDeploymentStatus

Schema = dict[str, Any]

# Keywords of JSON Schema that a structural schema does not know, or that pydantic adds for Python.
_DROPPED = frozenset({"title", "default", "examples", "propertyNames", "$defs"})

_COLUMNS = (
    ("Model", "string", ".spec.model.uri", 0),
    ("Accelerator", "string", ".status.plan.accelerator.product", 0),
    ("TP", "integer", ".status.plan.chosen.tensorParallelSize", 0),
    ("Replicas", "integer", ".status.replicas", 0),
    ("Ready", "integer", ".status.readyReplicas", 0),
    ("KV-Tokens", "integer", ".status.plan.kvTokens", 0),
    ("Status", "string", '.status.conditions[?(@.type=="Ready")].reason', 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("PP", "integer", ".status.plan.chosen.pipelineParallelSize", 1),
    ("Util", "string", ".status.plan.chosen.gpuMemoryUtilization", 1),
    ("Seqs", "integer", ".status.plan.chosen.maxNumSeqs", 1),
    ("Plan-Hash", "string", ".status.plan.hash", 1),
    ("URL", "string", ".status.url", 1),
)


def build_crd() -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["infd"],
                "categories": ["all"],
            },
            "scope": "Namespaced",
            "versions": [_version()],
        },
    }


def _version() -> dict[str, Any]:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [_column(*column) for column in _COLUMNS],
        "schema": {"openAPIV3Schema": _root_schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
    }


def _column(name: str, kind: str, path: str, priority: int) -> dict[str, Any]:
    column: dict[str, Any] = {"name": name, "type": kind, "jsonPath": path}
    return {**column, "priority": priority} if priority else column


def _root_schema() -> Schema:
    spec = structural_schema(InferenceDeploymentSpec)
    for rule in CEL_RULES:
        node = _node(spec, rule.path)
        node.setdefault("x-kubernetes-validations", []).append(_validation(rule))
    return {
        "type": "object",
        "description": "A fleet of LLM inference pods: the operator works out from a memory model "
        "how the model fits the accelerators, runs it, and keeps the number of replicas right.",
        "required": ["spec"],
        "x-kubernetes-validations": [_validation(rule) for rule in NAME_RULES],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": structural_schema(InferenceDeploymentStatus),
        },
    }


def _node(schema: Schema, path: tuple[str, ...]) -> Schema:
    for key in path:
        schema = schema["properties"][key]
    return schema


def _validation(rule: CelRule | NameRule) -> dict[str, str]:
    return {"rule": rule.expression, "message": rule.message}


def structural_schema(model: type[BaseModel]) -> Schema:
    """A model's JSON schema as Kubernetes takes it: no references, no unions with null."""
    schema = model.model_json_schema(by_alias=True)
    return _structural(schema, schema.get("$defs", {}))


def _structural(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    resolved = _resolve(schema, definitions)
    result = {
        key: value
        for key, value in resolved.items()
        if key not in _DROPPED and not (key == "additionalProperties" and value is False)
    }
    if "properties" in result:
        result["properties"] = {
            name: _structural(part, definitions) for name, part in result["properties"].items()
        }
    for key in ("items", "additionalProperties"):
        if isinstance(result.get(key), dict):
            result[key] = _structural(result[key], definitions)
    if isinstance(resolved.get("enum"), list) and "type" not in result:
        result["type"] = "string"
    return result


def _resolve(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """The schema itself behind `$ref` and `anyOf [X, null]`; the outer description wins."""
    outer = {key: value for key, value in schema.items() if key not in ("$ref", "anyOf")}
    if "$ref" in schema:
        inner = definitions[schema["$ref"].rpartition("/")[2]]
    elif "anyOf" in schema:
        inner = next(option for option in schema["anyOf"] if option.get("type") != "null")
    else:
        return outer
    return {**_resolve(copy.deepcopy(inner), definitions), **outer}


def render_crd() -> str:
    header = "# Generated by `make crds` from operator/pagefleet_operator/spec; do not edit.\n"
    return header + yaml.safe_dump(build_crd(), sort_keys=False, width=100)


if __name__ == "__main__":
    sys.stdout.write(render_crd())
