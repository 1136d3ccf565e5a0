"""Start the cluster's programs, recognise them later, and end them and nothing else."""

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from e2e.cluster import proc
from e2e.cluster.errors import ComponentCrashed, NotReadyInTime
from e2e.cluster.layout import Layout
from e2e.cluster.waiting import wait_until

LOG_TAIL_LINES = 25


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """A started program; the start time tells it from a later owner of the same pid."""

    pid: int
    started: int

    @property
    def is_running(self) -> bool:
        return proc.start_ticks(self.pid) == self.started


@dataclass(frozen=True, slots=True)
class Processes:
    """The programs of one cluster, by name."""

    layout: Layout

    def start(self, name: str, argv: Sequence[str]) -> None:
        """Start a program that outlives us, with its output in its own log."""
        self.layout.logs.mkdir(parents=True, exist_ok=True)
        self.layout.pids.mkdir(parents=True, exist_ok=True)
        with self.log(name).open("wb") as log:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
                env=self._environment(),
            )
        # A program that has ended already gets a record that matches no process.
        record = ProcessRecord(pid=child.pid, started=proc.start_ticks(child.pid) or -1)
        self._record_file(name).write_text(json.dumps(asdict(record)))
        # Others end and collect it by pid; without this the interpreter warns at exit.
        child.returncode = 0

    def log(self, name: str) -> Path:
        return self.layout.logs / f"{name}.log"

    def log_tail(self, name: str) -> str:
        try:
            lines = self.log(name).read_text(errors="replace").splitlines()
        except OSError:
            return "(no log)"
        return "\n".join(lines[-LOG_TAIL_LINES:]) or "(the log is empty)"

    def names(self) -> list[str]:
        """Everything that was started and not stopped, dead or alive."""
        return sorted(path.stem for path in self.layout.pids.glob("*.json"))

    def record(self, name: str) -> ProcessRecord | None:
        try:
            return ProcessRecord(**json.loads(self._record_file(name).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def is_running(self, name: str) -> bool:
        record = self.record(name)
        return record is not None and record.is_running

    def check(self, *names: str) -> None:
        """Raise if one of these programs is dead."""
        for name in names:
            if not self.is_running(name):
                raise ComponentCrashed(name, self.log_tail(name))

    def stop(self, name: str, *, timeout: float = 15) -> None:
        """Ask the program to end, insist after the timeout, and forget it."""
        record = self.record(name)
        if record is not None:
            end(record, timeout=timeout)
        self._record_file(name).unlink(missing_ok=True)

    def stop_strays(self) -> None:
        """End what carries our mark and is in no record: left by a crash between two steps."""
        for pid in proc.marked(self.layout.run):
            started = proc.start_ticks(pid)
            if started is not None and not self._is_recorded(pid):
                end(ProcessRecord(pid=pid, started=started), timeout=5)

    def _is_recorded(self, pid: int) -> bool:
        records = [self.record(name) for name in self.names()]
        return any(record is not None and record.pid == pid for record in records)

    def _record_file(self, name: str) -> Path:
        return self.layout.pids / f"{name}.json"

    def _environment(self) -> dict[str, str]:
        path = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"
        return {"PATH": path, "HOME": "/root", proc.MARK: str(self.layout.run)}


def end(record: ProcessRecord, *, timeout: float) -> None:
    """SIGTERM, and SIGKILL if the process is still there after the timeout."""
    for number, patience in ((signal.SIGTERM, timeout), (signal.SIGKILL, 10.0)):
        if not record.is_running:
            break
        with suppress(ProcessLookupError):
            os.kill(record.pid, number)
        with suppress(NotReadyInTime):
            wait_until(lambda: _has_ended(record), what="a process to end", timeout=patience)


def _has_ended(record: ProcessRecord) -> bool:
    _collect(record.pid)
    return not record.is_running


def _collect(pid: int) -> None:
    """Reap the process if it is a child of ours; somebody else's child is not our business."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
