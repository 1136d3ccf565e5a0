"""The workload of one plan: a Deployment, or a LeaderWorkerSet where a replica spans pods."""

from typing import Any

from pagefleet_operator.kube.capabilities import Capabilities
from pagefleet_operator.kube.resources import Manifest
from pagefleet_operator.manifests import names
from pagefleet_operator.manifests.pod import build_pod_template
from pagefleet_operator.manifests.probes import startup_budget_seconds
from pagefleet_operator.planning.images import Images
from pagefleet_operator.planning.serving_plan import ServingPlan
from pagefleet_operator.spec import InferenceDeployment


def build_workload(
    infd: InferenceDeployment,
    plan: ServingPlan,
    *,
    replicas: int,
    images: Images,
    capabilities: Capabilities,
) -> Manifest:
    build = _build_group_set if plan.pods_per_replica > 1 else _build_deployment
    return build(infd, plan, replicas=replicas, images=images, capabilities=capabilities)


def _build_deployment(
    infd: InferenceDeployment,
    plan: ServingPlan,
    *,
    replicas: int,
    images: Images,
    capabilities: Capabilities,
) -> Manifest:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(infd, plan),
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 1,
            "progressDeadlineSeconds": startup_budget_seconds(plan.memory.startup_seconds) + 60,
            # Another plan is another Deployment; this one never rolls, and has no room to surge.
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
            },
            "selector": {"matchLabels": _selector(infd, plan)},
            "template": build_pod_template(infd, plan, images=images, capabilities=capabilities),
        },
    }


def _build_group_set(
    infd: InferenceDeployment,
    plan: ServingPlan,
    *,
    replicas: int,
    images: Images,
    capabilities: Capabilities,
) -> Manifest:
    """One group is one replica; a lost pod restarts its group, since the ranks depend on all."""
    leader, worker = (
        build_pod_template(infd, plan, images=images, capabilities=capabilities, role=role)
        for role in ("server", "worker")
    )
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": _metadata(infd, plan),
        "spec": {
            "replicas": replicas,
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"maxSurge": 0, "maxUnavailable": 1},
            },
            "leaderWorkerTemplate": {
                "size": plan.pods_per_replica,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": leader,
                "workerTemplate": worker,
            },
        },
    }


def _metadata(infd: InferenceDeployment, plan: ServingPlan) -> dict[str, Any]:
    labels = names.engine_labels(infd, plan.plan_hash)
    del labels[names.ROLE_LABEL]
    return names.metadata(infd, names.workload_name(infd, plan.plan_hash), labels)


def _selector(infd: InferenceDeployment, plan: ServingPlan) -> dict[str, str]:
    return {**names.selector_labels(infd), names.PLAN_HASH_LABEL: plan.plan_hash}
