"""What a rule that joins several fields is: CEL for the API server, Python for parse(), examples.

The table of them is in `rule_table`. `accepted` and `refused` are specs (names, for a NameRule)
that a test sends to both sides, so that neither can drift from the other.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pagefleet_operator.spec.spec import InferenceDeploymentSpec

Holds = Callable[[InferenceDeploymentSpec], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class CelRule:
    """One rule; `path` is the part of the spec that is `self` in the expression."""

    name: str
    path: tuple[str, ...] = ()
    expression: str
    message: str
    field: str
    holds: Holds
    accepted: Mapping[str, Any]
    refused: Mapping[str, Any]
    cluster_only: bool = False  # `pagefleet run` may do what a cluster cannot


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRule:
    """One rule on metadata.name; it stands at the root of the schema."""

    name: str
    expression: str
    message: str
    holds: Callable[[str], bool]
    accepted: str
    refused: str


def example(uri: str = "hf://example/model", /, **fields: Any) -> dict[str, Any]:
    """A spec for `accepted` and `refused`."""
    return {"model": {"uri": uri}, **fields}


def uri_rule(
    *, name: str, scheme: str, pattern: str, message: str, accepted: str, refused: str
) -> CelRule:
    """What follows one scheme has one form."""

    def holds(spec: InferenceDeploymentSpec) -> bool:
        uri = spec.model.uri
        return not uri.startswith(scheme) or re.fullmatch(pattern, uri) is not None

    return CelRule(
        name=name,
        path=("model",),
        expression=f"!self.uri.startsWith('{scheme}') || self.uri.matches('^{pattern}$')",
        message=message,
        field="spec.model.uri",
        holds=holds,
        accepted=example(accepted),
        refused=example(refused),
    )


def lengths_rule(part: str) -> CelRule:
    """A median is not above its tail."""

    def holds(spec: InferenceDeploymentSpec) -> bool:
        lengths = value_at(spec, f"workload.{part}")
        return lengths is None or lengths["p50"] <= lengths["p95"]

    return CelRule(
        name=f"{part}-ordered",
        path=("workload", part),
        expression="self.p50 <= self.p95",
        message="p50 must not be above p95",
        field=f"spec.workload.{part}",
        holds=holds,
        accepted=example(workload={part: {"p50": 100, "p95": 100}}),
        refused=example(workload={part: {"p50": 101, "p95": 100}}),
    )


def only_on(kind: str, *, field: str, values: dict[str, Any]) -> CelRule:
    """A field of the spec that has a meaning on one kind of accelerator only."""
    other = "CPU" if kind == "GPU" else "GPU"

    def holds(spec: InferenceDeploymentSpec) -> bool:
        return spec.hardware_or_default.kind == kind or value_at(spec, field) is None

    keys = field.split(".")
    present = " && ".join(f"has(self.{'.'.join(keys[: depth + 1])})" for depth in range(len(keys)))
    hardware = values.get("hardware", {})
    return CelRule(
        name=f"{keys[-1]}-only-on-{kind.lower()}",
        expression=f"{_runs_on(kind)} || !({present})",
        message=f"{field} has a meaning on a {kind} only: remove it, or set hardware.accelerator "
        f"to {kind}",
        field=f"spec.{field}",
        holds=holds,
        accepted=example(**{**values, "hardware": {**hardware, "accelerator": kind}}),
        refused=example(**{**values, "hardware": {**hardware, "accelerator": other}}),
    )


def _runs_on(kind: str) -> str:
    is_cpu = "(has(self.hardware) && has(self.hardware.accelerator)"
    is_cpu += " && self.hardware.accelerator == 'CPU')"
    return is_cpu if kind == "CPU" else f"!{is_cpu}"


def value_at(spec: InferenceDeploymentSpec, field: str) -> Any:
    """The value of a field of the spec by its dotted JSON name; None when absent."""
    value: Any = spec.model_dump(by_alias=True)
    for key in field.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value
