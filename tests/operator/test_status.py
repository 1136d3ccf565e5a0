"""Conditions: true when they hold, unknown when nobody looked; times move with answers."""

from typing import Any

import pytest

from pagefleet_operator.errors import SpecError
from pagefleet_operator.model.inspection import Inspection
from pagefleet_operator.planning.capacity import CapacityCheck
from pagefleet_operator.planning.serving_plan import PlanRefusal, ServingPlan
from pagefleet_operator.spec import InferenceDeployment
from pagefleet_operator.status import FleetView, build_invalid_status, build_status
from tests.operator.builders import body, gpu_plan, infd, llama_8b

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"
FOUND = Inspection("Succeeded", "Inspected", "a Llama", llama_8b(), "abc")
PENDING = Inspection("Pending", "Inspecting", "wait")
ROOM = CapacityCheck(True, "room for 3 replicas", 3, 3)
NO_ROOM = CapacityCheck(False, "2 replicas wanted, 0 fit", 0, 0)
SERVING = FleetView(desired=2, existing=2, ready=2, updated=2, serving=2)
STARTING = FleetView(desired=2, existing=2, ready=1, updated=2, serving=1)
PLAN = gpu_plan()


def status(
    *,
    of: InferenceDeployment | None = None,
    inspection: Inspection = FOUND,
    plan: ServingPlan | PlanRefusal | None = PLAN,
    capacity: CapacityCheck | None = ROOM,
    fleet: FleetView = SERVING,
    now: str = NOW,
) -> dict[str, Any]:
    return build_status(
        of or infd(),
        now=now,
        inspection=inspection,
        inspection_key="key",
        plan=plan,
        capacity=capacity,
        fleet=fleet,
    )


def answers(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {entry["type"]: (entry["status"], entry["reason"]) for entry in found["conditions"]}


def test_fleet_that_serves_is_ready() -> None:
    found = status()
    assert answers(found) == {
        "Ready": ("True", "Serving"),
        "ModelResolved": ("True", "Inspected"),
        "MemoryFits": ("True", "Fits"),
        "CapacityAvailable": ("True", "RoomForAll"),
        "WorkloadReady": ("True", "ReplicasReady"),
        "Progressing": ("False", "Settled"),
    }
    assert found["observedGeneration"] == 3
    assert found["url"] == "http://demo.team.svc"
    assert found["model"]["shape"] == llama_8b().to_summary()
    assert all(entry["observedGeneration"] == 3 for entry in found["conditions"])


@pytest.mark.parametrize(
    ("changes", "ready"),
    [
        ({"fleet": STARTING}, ("False", "ReplicasStarting")),
        ({"fleet": STARTING, "capacity": NO_ROOM}, ("False", "InsufficientCapacity")),
        ({"capacity": NO_ROOM}, ("True", "Serving")),
        (
            {"plan": PlanRefusal("DoesNotFit", "short"), "capacity": None, "fleet": FleetView()},
            ("False", "DoesNotFit"),
        ),
        (
            {"inspection": PENDING, "plan": None, "capacity": None, "fleet": FleetView()},
            ("False", "Inspecting"),
        ),
        (
            {
                "inspection": Inspection("Failed", "ModelNotFound", "no"),
                "plan": None,
                "capacity": None,
                "fleet": FleetView(),
            },
            ("False", "ModelNotFound"),
        ),
        (
            {"fleet": FleetView(desired=1, existing=2, ready=2, updated=1, rollout="replacing")},
            ("False", "RollingOut"),
        ),
        (
            {"fleet": FleetView(desired=1, existing=1, failure=("OutOfMemory", "pod x"))},
            ("False", "OutOfMemory"),
        ),
        ({"of": infd(suspend=True), "fleet": FleetView()}, ("False", "Suspended")),
        ({"of": infd(sizing={"mode": "PlanOnly"}), "fleet": FleetView()}, ("False", "PlanOnly")),
        ({"of": infd(replicas=0), "fleet": FleetView()}, ("False", "NoReplicas")),
    ],
)
def test_ready_names_the_first_cause(changes: dict[str, Any], ready: tuple[str, str]) -> None:
    assert answers(status(**changes))["Ready"] == ready


def test_missing_accelerator_is_a_lack_of_capacity() -> None:
    refusal = PlanRefusal("NoAccelerator", "no H200")
    found = answers(status(plan=refusal, capacity=None, fleet=FleetView()))
    assert found["CapacityAvailable"] == ("False", "NoAccelerator")
    assert found["MemoryFits"] == ("Unknown", "NoAccelerator")
    assert found["Ready"] == ("False", "NoAccelerator")


def test_what_was_not_looked_at_is_unknown() -> None:
    found = answers(status(inspection=PENDING, plan=None, capacity=None, fleet=FleetView()))
    assert found["ModelResolved"][0] == "Unknown"
    assert found["MemoryFits"][0] == "Unknown"
    assert found["CapacityAvailable"][0] == "Unknown"


def test_model_that_cannot_be_pulled_is_a_no_and_not_a_wait() -> None:
    stuck = Inspection("Pending", "ImagePullFailed", "no such image")
    assert answers(status(inspection=stuck, plan=None))["ModelResolved"] == (
        "False",
        "ImagePullFailed",
    )


def test_transition_time_moves_only_with_the_answer() -> None:
    first = status(fleet=STARTING)
    again = InferenceDeployment.parse({**body(), "status": first})
    same = status(of=again, fleet=STARTING, now=LATER)
    assert same == first
    changed = {entry["type"]: entry for entry in status(of=again, now=LATER)["conditions"]}
    assert changed["Ready"]["lastTransitionTime"] == LATER
    assert changed["MemoryFits"]["lastTransitionTime"] == NOW


def test_invalid_object_keeps_what_it_has_and_says_why() -> None:
    before = status()
    error = SpecError("spec.replicas", "x", "is no number")
    found = build_invalid_status({**body(), "status": before}, error, now=LATER)
    assert answers(found)["Ready"] == ("False", "InvalidSpec")
    assert answers(found)["MemoryFits"][0] == "Unknown"
    assert (found["replicas"], found["plan"]) == (before["replicas"], before["plan"])
    assert "spec.replicas" in found["conditions"][0]["message"]


def test_long_messages_are_cut_to_what_the_schema_takes() -> None:
    found = status(plan=PlanRefusal("DoesNotFit", "x" * 9000), capacity=None)
    assert max(len(entry["message"]) for entry in found["conditions"]) == 4096
