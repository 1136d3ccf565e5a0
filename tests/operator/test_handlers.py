"""Which keys a watch event concerns, and what kopf is told."""

import pytest

from pagefleet_operator.kube.resources import (
    INFERENCE_DEPLOYMENTS,
    NODES,
    PODS,
    SERVICES,
    Key,
    Manifest,
)
from pagefleet_operator.kube.store import Store
from pagefleet_operator.process.handlers import WatchRouter, build_registry, build_settings
from tests.operator.fake_api import credentials_for

OWNED = {
    "app.kubernetes.io/managed-by": "pagefleet-operator",
    "pagefleet.io/inference-deployment": "chat",
}


def thing(name: str, version: int = 1, *, labels: dict[str, str] | None = None) -> Manifest:
    metadata = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": str(version)}
    return {"metadata": {**metadata, "labels": labels or {}}, "spec": {}, "status": {}}


def node(version: int = 1, *, gpus: str = "8", heartbeat: str = "t0") -> Manifest:
    conditions = [{"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}]
    return {
        "metadata": {"name": "n", "uid": "n", "resourceVersion": str(version)},
        "status": {"allocatable": {"nvidia.com/gpu": gpus}, "conditions": conditions},
    }


@pytest.fixture
def looked_at() -> list[Key]:
    return []


@pytest.fixture
def router(looked_at: list[Key]) -> WatchRouter:
    router = WatchRouter(Store(), look_at=looked_at.append)
    router.event(INFERENCE_DEPLOYMENTS, None, thing("chat"))
    router.event(INFERENCE_DEPLOYMENTS, None, thing("other"))
    looked_at.clear()
    return router


CHAT, OTHER = Key("ns", "chat"), Key("ns", "other")


def test_an_object_concerns_itself(router: WatchRouter, looked_at: list[Key]) -> None:
    router.event(INFERENCE_DEPLOYMENTS, "MODIFIED", thing("chat", 2))
    router.event(INFERENCE_DEPLOYMENTS, "DELETED", thing("chat", 3))
    assert looked_at == [CHAT, CHAT]


def test_a_child_concerns_its_owner(router: WatchRouter, looked_at: list[Key]) -> None:
    router.event(SERVICES, "ADDED", thing("chat", labels=OWNED))
    router.event(PODS, "ADDED", thing("chat-1", labels=OWNED))
    assert looked_at == [CHAT, CHAT]


def test_a_label_without_the_manager_makes_no_child(
    router: WatchRouter, looked_at: list[Key]
) -> None:
    router.event(PODS, "ADDED", thing("p", labels={"pagefleet.io/inference-deployment": "chat"}))
    assert looked_at == []


def test_old_news_is_no_news(router: WatchRouter, looked_at: list[Key]) -> None:
    router.event(SERVICES, "ADDED", thing("chat", 5, labels=OWNED))
    looked_at.clear()
    router.event(SERVICES, "MODIFIED", thing("chat", 5, labels=OWNED))
    router.event(SERVICES, "MODIFIED", thing("chat", 4, labels=OWNED))
    assert looked_at == []


def test_a_node_concerns_all_but_its_heartbeat_nobody(
    router: WatchRouter, looked_at: list[Key]
) -> None:
    router.event(NODES, "ADDED", node(1))
    assert sorted(looked_at) == [CHAT, OTHER]
    looked_at.clear()
    router.event(NODES, "MODIFIED", node(2, heartbeat="t1"))
    assert looked_at == []
    router.event(NODES, "MODIFIED", node(3, gpus="7"))
    router.event(NODES, "DELETED", node(4, gpus="7"))
    assert sorted(looked_at) == [CHAT, CHAT, OTHER, OTHER]


def test_a_foreign_pod_that_ends_wakes_those_that_wait_for_room(
    router: WatchRouter, looked_at: list[Key]
) -> None:
    router.waiting.add(OTHER)
    router.event(PODS, "ADDED", thing("foreign"))
    assert looked_at == []
    router.event(PODS, "MODIFIED", {**thing("foreign", 2), "status": {"phase": "Succeeded"}})
    router.event(PODS, "DELETED", thing("foreign", 3))
    assert looked_at == [OTHER, OTHER]


def test_kopf_neither_posts_nor_peers_nor_scans() -> None:
    settings = build_settings()
    assert settings.posting.enabled is False
    assert settings.peering.standalone is True
    assert settings.scanning.disabled is True
    assert isinstance(settings.watching.server_timeout, int)
    assert (settings.watching.client_timeout or 0) > settings.watching.server_timeout


def test_no_handler_makes_kopf_keep_state_on_objects(router: WatchRouter) -> None:
    registry = build_registry(router, credentials_for("http://api"))
    assert not registry._changing.get_all_handlers()
    assert not registry._spawning.get_all_handlers()
    assert registry._watching.get_all_handlers()
