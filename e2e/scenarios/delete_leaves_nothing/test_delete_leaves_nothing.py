"""Deleting an InferenceDeployment removes everything that was made for it."""

from e2e.cluster.waiting import wait_until
from e2e.support.fleet import Fleet

KINDS = (
    "deployments,replicasets,pods,services,endpointslices,configmaps,serviceaccounts,"
    "poddisruptionbudgets,networkpolicies"
)
ALWAYS_THERE = {"configmap/kube-root-ca.crt", "serviceaccount/default"}


def test_delete_removes_every_child(fleet: Fleet) -> None:
    fleet.apply_on_cpu("gone", replicas=1)
    fleet.wait_ready("gone")
    assert any("gone" in name for name in _left(fleet))

    fleet.kubectl("delete", "infd", "gone", "--wait=true", "--timeout=60s")
    wait_until(lambda: not _left(fleet), what=f"nothing but {ALWAYS_THERE}", timeout=120)


def test_delete_while_the_engine_starts(fleet: Fleet) -> None:
    fleet.apply_on_cpu("early", replicas=1)
    fleet.wait_condition("early", "MemoryFits", status="True", timeout=120)
    fleet.kubectl("delete", "infd", "early", "--wait=true", "--timeout=60s")
    wait_until(lambda: not _left(fleet), what="nothing to be left", timeout=120)


def _left(fleet: Fleet) -> set[str]:
    text = fleet.kubectl("get", KINDS, "-o", "name")
    return set(text.split()) - ALWAYS_THERE
