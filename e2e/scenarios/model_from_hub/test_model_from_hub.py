"""A model comes from a hub: inspected by ranges, downloaded by the pod, refused with the reason."""

from collections.abc import Iterator

import pytest

from e2e.model import model_folder
from e2e.stack import HUB_PORT, Stack
from e2e.support.chat import chat
from e2e.support.deployments import inference_deployment
from e2e.support.fleet import Fleet
from tests.support.hub_server import HubBehaviour, HubServer

HARDWARE = {"accelerator": "CPU", "cpu": "300m", "memory": "3Gi"}


@pytest.fixture
def hub(stack: Stack) -> Iterator[HubServer]:
    """A hub with the real model, where the operator's pods look for it."""
    if not stack.is_local:
        pytest.skip("a foreign cluster cannot reach a hub on this machine")
    models = {"example/smollm2": model_folder(), "example/gated": model_folder()}
    behaviour = HubBehaviour(gated={"example/gated"}, break_after_bytes=100_000_000, num_breaks=1)
    with HubServer(models, behaviour, address=(stack.host_address, HUB_PORT)) as server:
        yield server


def test_model_is_downloaded_over_a_broken_connection_and_answers(
    hub: HubServer, fleet: Fleet
) -> None:
    spec = {
        "model": {"uri": "hf://example/smollm2", "name": "smollm2"},
        "hardware": HARDWARE,
        "workload": {"maxModelLen": 1024},
    }
    fleet.kubectl.apply(inference_deployment("hubbed", spec))
    fleet.wait_ready("hubbed", timeout=240)
    answer = chat(fleet.url("hubbed"), "smollm2", "What is the capital of France?")
    assert "Paris" in answer["choices"][0]["message"]["content"]
    assert hub.behaviour.num_breaks == 0, "the connection was never broken"


@pytest.mark.parametrize(
    ("repository", "reason"),
    [("example/gated", "ModelAccessDenied"), ("example/nowhere", "ModelNotFound")],
)
def test_refused_model_is_told_in_a_condition(
    hub: HubServer, fleet: Fleet, repository: str, reason: str
) -> None:
    spec = {"model": {"uri": f"hf://{repository}"}, "hardware": HARDWARE}
    fleet.kubectl.apply(inference_deployment("refused", spec))
    told = fleet.wait_condition("refused", "ModelResolved", status="False", timeout=120)
    assert told["reason"] == reason, told
    assert repository in told["message"], told
