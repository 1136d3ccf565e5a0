"""spec.autoscaling becomes AutoscalingSettings: given values are kept, absent ones are defaults."""

from pagefleet_operator.autoscaling import (
    AutoscalingMode,
    AutoscalingSettings,
    PolicyType,
    ScalingPolicy,
    SelectPolicy,
    settings_from_spec,
)
from pagefleet_operator.spec.autoscaling import Autoscaling


def test_absent_parts_are_the_defaults_of_the_law() -> None:
    settings = settings_from_spec(Autoscaling.model_validate({"maxReplicas": 8}))
    assert settings == AutoscalingSettings(min_replicas=1, max_replicas=8)
    assert settings.targets.kv_utilization == 0.75
    assert settings.behavior.scale_down.stabilization_window_seconds == 600


def test_given_parts_are_kept() -> None:
    spec = {
        "minReplicas": 2,
        "maxReplicas": 8,
        "mode": "Advisory",
        "targets": {"kvUtilization": 50, "ttftP90": "1500ms"},
        "behavior": {
            "scaleUp": {"selectPolicy": "Disabled"},
            "scaleDown": {
                "stabilizationWindowSeconds": 20,
                "policies": [{"type": "Pods", "value": 3, "periodSeconds": 10}],
            },
        },
    }
    settings = settings_from_spec(Autoscaling.model_validate(spec))
    assert settings.mode is AutoscalingMode.ADVISORY
    assert settings.targets.kv_utilization == 0.5
    assert settings.targets.ttft_p90_seconds == 1.5
    assert settings.targets.prefill_utilization == 0.6
    up, down = settings.behavior.scale_up, settings.behavior.scale_down
    assert up.select_policy is SelectPolicy.DISABLED
    assert len(up.policies) == 2
    assert down.stabilization_window_seconds == 20
    assert down.policies == (ScalingPolicy(PolicyType.PODS, 3, 10),)


def test_scale_down_window_of_zero_is_not_taken_for_absent() -> None:
    spec = {"maxReplicas": 2, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}
    settings = settings_from_spec(Autoscaling.model_validate(spec))
    assert settings.behavior.scale_down.stabilization_window_seconds == 0
