"""Everything an InferenceDeployment owns, as a list in the order of creation."""

from collections.abc import Mapping

from pagefleet_operator.kube.capabilities import Capabilities
from pagefleet_operator.kube.resources import Manifest
from pagefleet_operator.manifests.monitoring import build_plan_config_map, build_pod_monitor
from pagefleet_operator.manifests.protection import (
    build_disruption_budget,
    build_network_policy,
    build_service_account,
)
from pagefleet_operator.manifests.service import build_pods_service, build_service
from pagefleet_operator.manifests.workload import build_workload
from pagefleet_operator.planning.images import Images
from pagefleet_operator.planning.serving_plan import ServingPlan
from pagefleet_operator.spec import InferenceDeployment


def build_manifests(
    infd: InferenceDeployment,
    plan: ServingPlan,
    *,
    replicas: Mapping[str, int] | int,
    capabilities: Capabilities,
    images: Images,
) -> list[Manifest]:
    """`replicas`: of this plan's workload, or by plan hash; other plans' are not built."""
    count = replicas if isinstance(replicas, int) else replicas.get(plan.plan_hash, 0)
    workload = build_workload(infd, plan, replicas=count, images=images, capabilities=capabilities)
    monitors = [build_pod_monitor(infd)] if capabilities.pod_monitor else []
    return [
        build_service_account(infd),
        build_network_policy(infd),
        build_disruption_budget(infd),
        build_service(infd),
        build_pods_service(infd),
        build_plan_config_map(infd, plan),
        *monitors,
        workload,
    ]
