"""Events: transitions of conditions only, once each, and never an obstacle."""

from typing import Any

from pagefleet_operator.kube.api_errors import Forbidden
from pagefleet_operator.kube.events import EventRecorder, Happening, transitions
from pagefleet_operator.kube.resources import Manifest

CHAT = {
    "apiVersion": "pagefleet.io/v1alpha1",
    "kind": "InferenceDeployment",
    "metadata": {"name": "chat", "namespace": "ns", "uid": "u1"},
}


def condition(kind: str, status: str, reason: str, message: str = "m") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def reasons(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[str]:
    return [happening.reason for happening in transitions(before, after)]


def test_what_stays_says_nothing_even_with_other_words() -> None:
    before = [condition("MemoryFits", "False", "DoesNotFit", "short by 1 GiB")]
    after = [condition("MemoryFits", "False", "DoesNotFit", "short by 2 GiB")]
    assert reasons(before, after) == []


def test_a_refusal_is_a_warning_and_its_cure_is_not() -> None:
    bad = [condition("MemoryFits", "False", "DoesNotFit")]
    good = [condition("MemoryFits", "True", "Fits")]
    assert [h.warning for h in transitions(good, bad)] == [True]
    assert [h.warning for h in transitions(bad, good)] == [False]


def test_the_beginning_is_no_news_but_a_refusal_is() -> None:
    after = [
        condition("Ready", "False", "DoesNotFit"),
        condition("ModelResolved", "Unknown", "Inspecting"),
        condition("WorkloadReady", "False", "NoPlan"),
        condition("Progressing", "False", "Settled"),
        condition("MemoryFits", "False", "DoesNotFit"),
    ]
    assert reasons([], after) == ["DoesNotFit"]


def test_ready_does_not_repeat_its_cause() -> None:
    before = [condition("Ready", "True", "Serving"), condition("MemoryFits", "True", "Fits")]
    after = [condition("Ready", "False", "Tight"), condition("MemoryFits", "False", "Tight")]
    assert [h.note for h in transitions(before, after)] == ["MemoryFits: m"]


class Creator:
    def __init__(self, *, refuse: bool = False) -> None:
        self.created: list[Manifest] = []
        self._refuse = refuse

    async def create(self, manifest: Manifest) -> Manifest:
        if self._refuse:
            raise Forbidden("no")
        self.created.append(manifest)
        return manifest


async def test_the_same_event_is_written_again_only_after_ten_minutes() -> None:
    creator, now = Creator(), [0.0]
    recorder = EventRecorder(creator, instance="op-0", clock=lambda: now[0])
    for now[0] in (0.0, 300.0, 601.0):
        await recorder.record(CHAT, [Happening("Serving", "2 replicas serve")])
    assert len(creator.created) == 2
    event = creator.created[0]
    assert event["regarding"]["uid"] == "u1" and event["type"] == "Normal"
    assert event["metadata"]["namespace"] == "ns"


async def test_a_refused_event_is_only_logged() -> None:
    recorder = EventRecorder(Creator(refuse=True), instance="op-0", clock=lambda: 0.0)
    await recorder.record(CHAT, [Happening("Serving", "x")])


async def test_a_long_note_is_cut_to_what_the_server_takes() -> None:
    creator = Creator()
    recorder = EventRecorder(creator, instance="op-0", clock=lambda: 0.0)
    await recorder.record(CHAT, [Happening("Long", "x" * 5000, warning=True)])
    assert len(creator.created[0]["note"]) <= 1024
    assert creator.created[0]["type"] == "Warning"
