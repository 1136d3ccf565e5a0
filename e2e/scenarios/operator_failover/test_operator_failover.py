"""Two operator replicas: when the leader is killed the other one goes on within 20 seconds."""

import time
from collections.abc import Iterator

import pytest

from e2e.stack import OPERATOR_NAMESPACE, Stack
from e2e.support.fleet import Fleet
from e2e.support.kubectl import Kubectl, Object

LEASE = "pagefleet-operator"


@pytest.fixture
def two_operators(stack: Stack) -> Iterator[Kubectl]:
    operator = stack.kubectl.inside(OPERATOR_NAMESPACE)
    operator("scale", "deployment/pagefleet-operator", "--replicas=2")
    operator("rollout", "status", "deployment/pagefleet-operator", "--timeout=120s", timeout=150)
    yield operator
    operator("scale", "deployment/pagefleet-operator", "--replicas=1")
    operator("rollout", "status", "deployment/pagefleet-operator", "--timeout=120s", timeout=150)


def test_killed_leader_is_followed_and_work_goes_on(two_operators: Kubectl, fleet: Fleet) -> None:
    first = _holder(two_operators)
    leader = next(p for p in two_operators.list("pods") if p["metadata"]["name"] in first)
    two_operators(
        "delete", "pod", leader["metadata"]["name"], "--grace-period=0", "--force", "--wait=false"
    )
    killed = time.monotonic()

    lease = two_operators.wait_for(
        "lease",
        LEASE,
        lambda item: item["spec"].get("holderIdentity") not in ("", None, first),
        what="another leader",
        timeout=60,
    )
    waited = time.monotonic() - killed
    assert lease["spec"]["leaseDurationSeconds"] <= 20, lease["spec"]
    assert lease["spec"]["leaseTransitions"] >= 1
    print(f"another leader after {waited:.1f} s")

    fleet.apply_on_cpu("after", sizing={"mode": "PlanOnly"})
    fleet.wait_condition("after", "MemoryFits", status="True", timeout=90)


def _holder(operator: Kubectl) -> str:
    def held(item: Object) -> bool:
        return bool(item["spec"].get("holderIdentity"))

    lease = operator.wait_for("lease", LEASE, held, what="a leader", timeout=60)
    return str(lease["spec"]["holderIdentity"])
