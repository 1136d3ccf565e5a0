"""The chart is sound, refuses wrong values, and its release leaves nothing but the CRD."""

from pathlib import Path

import pytest

from e2e.cluster.errors import CommandFailed
from e2e.cluster.waiting import wait_until
from e2e.stack import CHART, OPERATOR_NAMESPACE, Stack

KINDS = (
    "deployments,replicasets,pods,services,serviceaccounts,leases,configmaps,"
    "clusterroles,clusterrolebindings,roles,rolebindings"
)


def test_chart_passes_the_strict_lint(stack: Stack) -> None:
    assert "0 chart(s) failed" in stack.run_helm("lint", "--strict", str(CHART))


@pytest.mark.parametrize("setting", ["replicas=two", "imagez.operator=x", "autoscaleSeconds=-1"])
def test_wrong_value_is_refused_by_name(stack: Stack, setting: str) -> None:
    with pytest.raises(CommandFailed, match=setting.split("=")[0].split(".")[0]):
        stack.run_helm("template", str(CHART), "--set", setting)


def test_uninstall_leaves_the_crd_alone(stack: Stack, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(stack.run_helm("get", "values", "pagefleet", "-o", "yaml"))
    stack.run_helm("uninstall", "pagefleet", "--wait")
    try:
        wait_until(lambda: not _left(stack), what="nothing of the operator", timeout=60)
        assert stack.kubectl.get("crd", "inferencedeployments.pagefleet.io") is not None
    finally:
        stack.run_helm("install", "pagefleet", str(CHART), "-f", str(values))
        operator = stack.kubectl.inside(OPERATOR_NAMESPACE)
        operator("rollout", "status", "deployment/pagefleet-operator", "--timeout=120s")


def _left(stack: Stack) -> list[str]:
    names = stack.kubectl("get", KINDS, "-A", "-o", "name").split()
    return [name for name in names if "pagefleet-operator" in name]
