"""An edit of the plan rolls the pods without a failed request; nothing else restarts them."""

from e2e.stack import OPERATOR_NAMESPACE
from e2e.support.fleet import Fleet, uid
from e2e.support.load import Load, under_load


def test_edit_rolls_pods_only_when_the_plan_changes(fleet: Fleet) -> None:
    fleet.apply_on_cpu("roll", replicas=1)
    before = fleet.wait_ready("roll")["status"]["plan"]["hash"]
    (old,) = fleet.pods("roll")
    load = Load(fleet.url("roll"), "roll", workers=2, max_tokens=16)

    with under_load(load):
        fleet.kubectl.patch("infd", "roll", {"spec": {"rolloutStrategy": {"maxSurge": 1}}})
        assert fleet.wait_ready("roll")["status"]["plan"]["hash"] == before
        assert [uid(pod) for pod in fleet.pods("roll")] == [uid(old)]

        fleet.kubectl.patch("infd", "roll", {"spec": {"sizing": {"maxNumSeqs": 5}}})
        after = fleet.wait_ready("roll", timeout=240)["status"]["plan"]["hash"]
        assert after != before
        fleet.kubectl.wait_for(
            "infd",
            "roll",
            lambda item: (
                [uid(pod) for pod in fleet.pods("roll")] != [uid(old)]
                and len(fleet.pods("roll")) == 1
            ),
            what="only the new pod to be left",
            timeout=180,
        )

    assert load.finished > 5
    assert load.failures == []
    (new,) = fleet.pods("roll")
    assert new["metadata"]["labels"]["pagefleet.io/plan-hash"] == after


def test_operator_restart_restarts_no_engine(fleet: Fleet) -> None:
    fleet.apply_on_cpu("calm", replicas=1)
    fleet.wait_ready("calm")
    (before,) = fleet.pods("calm")

    operator = fleet.kubectl.inside(OPERATOR_NAMESPACE)
    operator("rollout", "restart", "deployment/pagefleet-operator")
    operator("rollout", "status", "deployment/pagefleet-operator", "--timeout=120s", timeout=150)
    fleet.kubectl.patch("infd", "calm", {"spec": {"rolloutStrategy": {"maxSurge": 1}}})
    fleet.wait_ready("calm")

    (after,) = fleet.pods("calm")
    assert uid(after) == uid(before)
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
