"""A model that cannot fit is refused with numbers before a pod starts, and heals by an edit."""

from e2e.support.fleet import Fleet


def test_refused_with_numbers_then_healed_by_an_edit(fleet: Fleet) -> None:
    small = {"accelerator": "CPU", "cpu": "300m", "memory": "512Mi"}
    fleet.apply_on_cpu("tight", hardware=small)

    refused = fleet.wait_condition("tight", "MemoryFits", status="False", timeout=120)
    assert "MiB" in refused["message"] or "GiB" in refused["message"], refused
    assert fleet.wait_condition("tight", "Ready", status="False")["reason"] == refused["reason"]
    assert fleet.pods("tight") == []

    fleet.kubectl.patch("infd", "tight", {"spec": {"hardware": {"memory": "3Gi"}}})
    fleet.wait_ready("tight")
    assert fleet.get("tight")["status"]["plan"]["kvTokens"] >= 1024


def test_pinned_value_that_does_not_fit_is_named(fleet: Fleet) -> None:
    fleet.apply_on_cpu("pinned", sizing={"limits": {"minKVTokens": 50_000_000}})
    refused = fleet.wait_condition("pinned", "MemoryFits", status="False", timeout=120)
    assert "minKVTokens" in refused["message"] or "50000000" in refused["message"], refused


def test_fleet_without_room_names_need_best_node_and_shortfall(fleet: Fleet) -> None:
    huge = {"accelerator": "CPU", "cpu": "300m", "memory": "900Gi"}
    fleet.apply_on_cpu("homeless", hardware=huge)
    full = fleet.wait_condition("homeless", "CapacityAvailable", status="False", timeout=120)
    assert "900" in full["message"], full
    assert fleet.stack.node_name in full["message"], full

    fleet.kubectl.patch("infd", "homeless", {"spec": {"hardware": {"memory": "3Gi"}}})
    fleet.wait_ready("homeless")
