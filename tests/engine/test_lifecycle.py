"""States of the server: what fails readiness, what refuses, what can be taken back."""

from pagefleet_engine.lifecycle import Lifecycle, ServerState


def test_starting_server_is_not_ready() -> None:
    lifecycle = Lifecycle()
    assert (lifecycle.state, lifecycle.is_ready) == (ServerState.STARTING, False)
    lifecycle.started()
    assert (lifecycle.state, lifecycle.is_ready) == (ServerState.READY, True)


def test_draining_server_is_not_ready_but_does_not_refuse() -> None:
    lifecycle = Lifecycle(has_started=True)
    lifecycle.drain()
    assert lifecycle.state is ServerState.DRAINING
    assert not lifecycle.is_ready and not lifecycle.is_refusing


def test_drain_can_be_taken_back() -> None:
    lifecycle = Lifecycle(has_started=True)
    lifecycle.drain()
    lifecycle.undrain()
    assert lifecycle.is_ready


def test_termination_cannot_be_taken_back() -> None:
    lifecycle = Lifecycle(has_started=True)
    lifecycle.terminate()
    lifecycle.undrain()
    assert lifecycle.state is ServerState.DRAINING


def test_drain_before_the_start_keeps_the_server_from_becoming_ready() -> None:
    lifecycle = Lifecycle()
    lifecycle.drain()
    lifecycle.started()
    assert not lifecycle.is_ready
