"""The custom resource as Python values."""

from pagefleet_operator.spec.inference_deployment import (
    API_VERSION,
    GROUP,
    KIND,
    PLURAL,
    VERSION,
    InferenceDeployment,
    parse_spec,
)
from pagefleet_operator.spec.rule_table import CEL_RULES, NAME_RULES
from pagefleet_operator.spec.rules import CelRule, NameRule
from pagefleet_operator.spec.spec import InferenceDeploymentSpec

__all__ = [
    "API_VERSION",
    "CEL_RULES",
    "GROUP",
    "KIND",
    "NAME_RULES",
    "PLURAL",
    "VERSION",
    "CelRule",
    "InferenceDeployment",
    "InferenceDeploymentSpec",
    "NameRule",
    "parse_spec",
]
