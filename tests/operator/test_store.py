"""The store: the newest version wins, deletions name one object, listings correct it."""

from pagefleet_operator.kube.resources import INFERENCE_DEPLOYMENTS, NODES, PODS, Key, Manifest
from pagefleet_operator.kube.store import Store

LABELS = {
    "app.kubernetes.io/managed-by": "pagefleet-operator",
    "pagefleet.io/inference-deployment": "chat",
}
CHAT = Key("ns", "chat")


def pod(name: str, version: int, *, uid: str = "u", owned: bool = True, **spec: object) -> Manifest:
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": uid,
            "resourceVersion": str(version),
            "labels": LABELS if owned else {"app": "foreign"},
            "managedFields": [{"manager": "kubelet"}],
        },
        "spec": {"nodeName": "n1", "containers": [], **spec},
        "status": {"phase": "Running"},
    }


def test_the_newest_version_wins_in_any_order() -> None:
    store = Store()
    assert store.put(PODS, pod("a", 9))
    assert not store.put(PODS, pod("a", 10**0))
    assert store.put(PODS, pod("a", 10))
    kept = store.get(PODS, "ns", "a")
    assert kept is not None and kept["metadata"]["resourceVersion"] == "10"


def test_a_namesake_replaces_whatever_its_version() -> None:
    store = Store()
    store.put(PODS, pod("a", 9, uid="old"))
    assert store.put(PODS, pod("a", 9, uid="new"))


def test_a_late_deletion_of_the_predecessor_spares_the_namesake() -> None:
    store = Store()
    store.put(PODS, pod("a", 9, uid="new"))
    store.drop(PODS, pod("a", 5, uid="old"))
    assert store.get(PODS, "ns", "a") is not None


def test_children_are_found_by_owner_and_leave_with_deletion() -> None:
    store = Store()
    store.put(PODS, pod("a", 1))
    store.put(PODS, pod("b", 1, owned=False))
    assert [child["metadata"]["name"] for child in store.children(CHAT)] == ["a"]
    store.drop(PODS, pod("a", 2))
    assert store.children(CHAT) == []


def test_a_listing_corrects_what_watches_missed_and_says_how_much() -> None:
    store = Store()
    store.put(PODS, pod("stale", 1))
    store.put(PODS, pod("same", 1))
    missed = store.replace_all(PODS, [pod("same", 1), pod("missed", 2)])
    assert missed == 2
    assert sorted(child["metadata"]["name"] for child in store.children(CHAT)) == ["missed", "same"]


def test_of_a_foreign_pod_only_its_requests_are_kept() -> None:
    store = Store()
    container = {"name": "c", "image": "i", "env": [1], "resources": {"requests": {"cpu": "1"}}}
    store.put(PODS, pod("a", 1, owned=False, containers=[container], volumes=[1]))
    kept = store.get(PODS, "ns", "a")
    assert kept is not None
    assert kept["spec"]["nodeName"] == "n1" and "volumes" not in kept["spec"]
    assert kept["spec"]["containers"] == [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    assert "managedFields" not in kept["metadata"]


def test_a_node_keeps_no_image_list_and_keys_name_the_objects() -> None:
    store = Store()
    metadata = {"name": "n", "uid": "n", "resourceVersion": "1"}
    store.put(NODES, {"metadata": metadata, "status": {"images": [1] * 50, "allocatable": {}}})
    kept = store.get(NODES, "", "n")
    assert kept is not None and "images" not in kept["status"]
    store.put(INFERENCE_DEPLOYMENTS, {"metadata": {**metadata, "name": "x", "namespace": "ns"}})
    assert store.keys() == [Key("ns", "x")]
