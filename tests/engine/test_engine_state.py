"""How the death of the engine core is explained."""

from pathlib import Path

import pytest

from pagefleet_engine.engine_state import count_oom_kills, explain_death


@pytest.mark.parametrize(
    ("code", "is_oom", "reason", "words"),
    [
        (-9, True, "OutOfMemory", "memory ran out"),
        (-9, False, "EngineDied", "signal 9"),
        (-11, False, "EngineDied", "signal 11"),
        (3, False, "EngineDied", "exited with 3"),
    ],
)
def test_death_is_explained(code: int, is_oom: bool, reason: str, words: str) -> None:
    error = explain_death(code, is_oom=is_oom)
    assert error.reason == reason
    assert words in str(error)


def test_kills_are_read_from_the_containers_cgroup(tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    assert count_oom_kills(events) == 0
    events.write_text("low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\noom_group_kill 0\n")
    assert count_oom_kills(events) == 1
