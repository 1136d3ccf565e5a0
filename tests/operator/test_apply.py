"""Apply: what is created, configured, left alone and pruned; what counts as the same."""

from typing import Any

import pytest

from pagefleet_operator.kube.apply import (
    APPLIED_HASH,
    apply,
    covers,
    difference,
    keep_pods_as_they_are,
    stamp,
)
from pagefleet_operator.kube.resources import Manifest


def config_map(name: str, owner: str = "u1", **data: str) -> Manifest:
    reference = {"kind": "InferenceDeployment", "uid": owner, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "ns", "ownerReferences": [reference]},
        "data": data,
    }


def deployment(replicas: int, **template: Any) -> Manifest:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "ns"},
        "spec": {"replicas": replicas, "selector": {}, "template": template},
    }


class Recorder:
    def __init__(self) -> None:
        self.applied: list[str] = []
        self.deleted: list[str] = []

    async def apply(self, manifest: Manifest, *, subresource: str = "") -> Manifest:
        self.applied.append(manifest["metadata"]["name"])
        return manifest

    async def delete(self, live: Manifest) -> None:
        self.deleted.append(live["metadata"]["name"])


async def test_each_child_is_created_configured_left_alone_or_pruned() -> None:
    wanted = [config_map("new"), config_map("same", x="1"), config_map("other", x="2")]
    live = [stamp(config_map("same", x="1")), stamp(config_map("other", x="1"))]
    live.append(stamp(config_map("gone")))
    recorder = Recorder()
    result = await apply(recorder, difference(wanted, live, owner_uid="u1"))
    assert result.created == ("ConfigMap/new",)
    assert result.configured == ("ConfigMap/other",)
    assert result.unchanged == ("ConfigMap/same",)
    assert result.pruned == ("ConfigMap/gone",)
    assert (recorder.applied, recorder.deleted) == (["new", "other"], ["gone"])


def test_only_what_this_owner_controls_is_pruned() -> None:
    live = [config_map("theirs", owner="u2"), config_map("mine")]
    live.append({**config_map("loose"), "metadata": {"name": "loose", "namespace": "ns"}})
    change = difference([], live, owner_uid="u1")
    assert [child["metadata"]["name"] for child in change.prune] == ["mine"]


async def test_what_is_already_being_deleted_is_not_deleted_again() -> None:
    dying = config_map("dying")
    dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    recorder = Recorder()
    await apply(recorder, difference([], [dying], owner_uid="u1"))
    assert recorder.deleted == []


def test_a_field_no_longer_wanted_is_a_difference() -> None:
    change = difference([config_map("a")], [stamp(config_map("a", x="1"))], owner_uid="u1")
    assert len(change.configure) == 1


def test_what_the_server_added_is_none() -> None:
    live = stamp(config_map("a", x="1"))
    live["metadata"]["uid"] = "u9"
    live["immutable"] = False
    assert difference([config_map("a", x="1")], [live], owner_uid="u1").configure == ()


@pytest.mark.parametrize(
    ("live", "wanted", "same"),
    [
        ({"limits": {"cpu": "1"}}, {"limits": {"cpu": "1000m"}}, True),
        ({"limits": {"memory": "1Gi"}}, {"limits": {"memory": "1024Mi"}}, True),
        ({"limits": {"memory": "1Gi"}}, {"limits": {"memory": "1025Mi"}}, False),
        ({"sizeLimit": "64Mi"}, {"sizeLimit": "67108864"}, True),
        ({"name": "1000m"}, {"name": "1"}, False),
        ({}, {"suspend": False}, True),
        ({}, {"replicas": 0}, True),
        ({}, {"replicas": 1}, False),
        ({"a": [1, 2]}, {"a": [1]}, False),
        ({"a": [{"x": 1, "y": 2}]}, {"a": [{"x": 1}]}, True),
    ],
)
def test_values_are_compared_as_the_server_writes_them(
    live: Manifest, wanted: Manifest, same: bool
) -> None:
    assert covers(live, wanted) is same


def test_a_workload_that_exists_keeps_its_pods() -> None:
    live = deployment(1, spec={"image": "old", "schedulerName": "default-scheduler"})
    kept = keep_pods_as_they_are(deployment(2, spec={"image": "new"}), live)
    assert kept["spec"]["replicas"] == 2
    assert kept["spec"]["template"] == live["spec"]["template"]
    assert keep_pods_as_they_are(deployment(2), None) == deployment(2)


def test_the_hash_of_a_workload_is_that_of_all_but_its_pods() -> None:
    hashes = [
        stamp(manifest)["metadata"]["annotations"][APPLIED_HASH]
        for manifest in (deployment(1, a=1), deployment(1, a=2), deployment(2, a=1))
    ]
    assert hashes[0] == hashes[1] != hashes[2]
