"""What can go wrong with the local cluster.

ClusterError
├── MissingPrerequisite   the machine lacks root, Go, disk space...: one line says what to do
├── CommandFailed         a program that we called returned an error
├── ComponentCrashed      a program that we started ended; carries the tail of its log
└── NotReadyInTime        everything runs, but a condition did not come true
"""


class ClusterError(Exception):
    """Any failure to build, start, use or stop the cluster."""


class MissingPrerequisite(ClusterError):
    """The machine lacks something that only its user can give."""


class CommandFailed(ClusterError):
    """A program that was called returned an error."""


class ComponentCrashed(ClusterError):
    """A program of the cluster ended although it should run."""

    def __init__(self, name: str, log_tail: str) -> None:
        super().__init__(f"{name} ended unexpectedly. The end of its log:\n{log_tail}")
        self.name = name
        self.log_tail = log_tail


class NotReadyInTime(ClusterError):
    """A condition did not come true in the time it normally needs."""
