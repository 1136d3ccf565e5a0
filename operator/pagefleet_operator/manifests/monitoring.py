"""What tells others about a fleet: its plan as a ConfigMap, its metrics as a PodMonitor."""

import json

from pagefleet_operator.kube.resources import Manifest
from pagefleet_operator.manifests import names
from pagefleet_operator.planning.serving_plan import ServingPlan
from pagefleet_operator.spec import InferenceDeployment


def build_plan_config_map(infd: InferenceDeployment, plan: ServingPlan) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": names.metadata(infd, names.config_map_name(infd), names.common_labels(infd)),
        "data": {"plan.json": json.dumps(plan.to_status(), indent=2, sort_keys=True)},
    }


def build_pod_monitor(infd: InferenceDeployment) -> Manifest:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": names.metadata(infd, infd.name, names.common_labels(infd)),
        "spec": {
            "selector": {"matchLabels": names.server_selector(infd)},
            "podMetricsEndpoints": [
                {"port": names.PORT_NAME, "path": "/metrics", "interval": "15s"}
            ],
        },
    }
