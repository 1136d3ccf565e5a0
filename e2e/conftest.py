"""One cluster and one operator for all scenarios; a namespace of its own for each test."""

import os
import re
import uuid
from collections.abc import Iterator

import pytest

from e2e.cluster.progress import Progress
from e2e.stack import HUB_PORT, Stack, ensure_stack
from e2e.support.fleet import Fleet
from e2e.support.kubectl import Kubectl


@pytest.fixture(scope="session")
def stack() -> Stack:
    """The cluster with the test add-ons and the chart installed."""
    found = ensure_stack(Progress(), test_addons=True)
    found.install(f"engine.hfEndpoint=http://{found.host_address}:{HUB_PORT}", "autoscaleSeconds=3")
    return found


@pytest.fixture
def kubectl(stack: Stack, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """kubectl in a fresh namespace that goes with the test."""
    label = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:30].strip("-")
    namespace = f"e2e-{label}-{uuid.uuid4().hex[:5]}"
    inside = stack.kubectl.inside(namespace)
    inside("create", "namespace", namespace)
    yield inside
    if os.environ.get("PAGEFLEET_E2E_KEEP"):
        return
    inside("delete", "infd", "--all", "--wait=false")
    inside("delete", "namespace", namespace, "--wait=true", "--timeout=120s", timeout=150)


@pytest.fixture
def fleet(stack: Stack, kubectl: Kubectl) -> Fleet:
    """The InferenceDeployments of this test's namespace."""
    return Fleet(stack, kubectl)
