"""Lifecycle: whether the server is ready and whether it takes requests; no I/O, no clock."""

from dataclasses import dataclass
from enum import StrEnum


class ServerState(StrEnum):
    """The values are the `state` label of the metrics and of `/ready`."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


@dataclass(slots=True)
class Lifecycle:
    """What happened to the server so far.

        starting --started()--> ready --drain()--> draining --terminate()--> --refuse()--> end
                                  ^----undrain()-------+

    A draining server is not ready but still serves what arrives: endpoints are withdrawn late.
    Only `refuse` turns requests away.
    """

    has_started: bool = False
    is_draining: bool = False
    is_terminating: bool = False
    is_refusing: bool = False

    @property
    def state(self) -> ServerState:
        if self.is_draining or self.is_terminating:
            return ServerState.DRAINING
        return ServerState.READY if self.has_started else ServerState.STARTING

    @property
    def is_ready(self) -> bool:
        return self.state is ServerState.READY

    def started(self) -> None:
        self.has_started = True

    def drain(self) -> None:
        self.is_draining = True

    def undrain(self) -> None:
        """Take a drain back; a termination cannot be taken back."""
        self.is_draining = False

    def terminate(self) -> None:
        self.is_terminating = True

    def refuse(self) -> None:
        self.is_refusing = True
