"""Programs are recognised by pid and start time, and nobody else's is ever signalled."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.cluster import proc
from e2e.cluster.errors import ComponentCrashed
from e2e.cluster.layout import Layout
from e2e.cluster.processes import Processes
from e2e.cluster.waiting import wait_until

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('up', flush=True); time.sleep(600)",
]


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    return Processes(Layout(cache=tmp_path / "cache", run=tmp_path / "run", var=tmp_path / "var"))


def test_started_program_runs_until_it_is_stopped(processes: Processes) -> None:
    processes.start("sleeper", SLEEP)
    assert processes.is_running("sleeper")
    assert processes.names() == ["sleeper"]
    processes.stop("sleeper")
    assert not processes.is_running("sleeper")
    assert processes.names() == []


def test_stubborn_program_is_killed(processes: Processes) -> None:
    processes.start("stubborn", STUBBORN)
    wait_until(lambda: "up" in processes.log_tail("stubborn"), what="its output", timeout=30)
    processes.stop("stubborn", timeout=0.1)
    assert proc.marked(processes.layout.run) == []


def test_crash_is_reported_with_the_end_of_the_log(processes: Processes) -> None:
    processes.start("broken", [sys.executable, "-c", "raise SystemExit('port is taken')"])
    wait_until(lambda: not processes.is_running("broken"), what="its end", timeout=30)
    with pytest.raises(ComponentCrashed, match="broken ended unexpectedly(.|\n)*port is taken"):
        processes.check("broken")


def test_pid_of_somebody_else_is_not_signalled(processes: Processes) -> None:
    stranger = subprocess.Popen(SLEEP)
    try:
        processes.layout.pids.mkdir(parents=True)
        record = {"pid": stranger.pid, "started": 1}
        (processes.layout.pids / "etcd.json").write_text(json.dumps(record))
        assert not processes.is_running("etcd")
        processes.stop("etcd")
        processes.stop_strays()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_half_written_record_counts_as_not_running(processes: Processes) -> None:
    processes.layout.pids.mkdir(parents=True)
    (processes.layout.pids / "etcd.json").write_text('{"pid": 1')
    assert not processes.is_running("etcd")
    processes.stop("etcd")
    assert processes.names() == []


def test_unrecorded_program_of_a_crashed_start_is_found_and_ended(processes: Processes) -> None:
    environment = {**os.environ, proc.MARK: str(processes.layout.run)}
    stray = subprocess.Popen(SLEEP, env=environment)
    wait_until(lambda: proc.marked(processes.layout.run) == [stray.pid], what="it", timeout=30)
    processes.stop_strays()
    assert proc.start_ticks(stray.pid) is None
    stray.wait()


def test_start_time_of_the_dead_is_none() -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    assert proc.start_ticks(done.pid) is None
    assert proc.start_ticks(os.getpid()) is not None
