"""A stated KUBECONFIG is used as it is, and never without named images."""

from pathlib import Path

import pytest

from e2e.cluster.access import IMAGE_VARIABLES, Images, stated_cluster
from e2e.cluster.errors import MissingPrerequisite
from e2e.cluster.layout import Layout

IMAGES = {name: f"registry.example/{part}:1" for part, name in IMAGE_VARIABLES.items()}


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/opt/bin/{name}")


def test_without_kubeconfig_the_cluster_is_ours() -> None:
    assert stated_cluster({}) is None


def test_our_own_kubeconfig_is_no_foreign_cluster() -> None:
    assert stated_cluster({"KUBECONFIG": str(Layout.default().kubeconfig)}) is None


def test_stated_cluster_is_used_with_its_images() -> None:
    cluster = stated_cluster({"KUBECONFIG": "/home/me/.kube/config", **IMAGES})
    assert cluster is not None
    assert cluster.kubeconfig == Path("/home/me/.kube/config")
    assert cluster.kubectl == Path("/opt/bin/kubectl")
    assert cluster.images == Images(
        operator="registry.example/operator:1",
        engine="registry.example/engine:1",
        model="registry.example/model:1",
    )


def test_missing_image_is_named() -> None:
    stated = {"KUBECONFIG": "/k", **IMAGES, "PAGEFLEET_IMAGE_MODEL": ""}
    with pytest.raises(MissingPrerequisite, match="set PAGEFLEET_IMAGE_MODEL to images"):
        stated_cluster(stated)


def test_missing_kubectl_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(MissingPrerequisite, match="kubectl must be on the PATH"):
        stated_cluster({"KUBECONFIG": "/k", **IMAGES})
