"""One engine on this machine, with the plan's flags: what a pod would run, as a child process."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from pagefleet_operator.manifests.placement import thread_count
from pagefleet_operator.planning.engine_args import replace_flags
from pagefleet_operator.planning.serving_plan import ServingPlan


def engine_command(plan: ServingPlan, *, folder: Path, host: str, port: int) -> list[str]:
    """The pod's command; only where the model lies and where to listen are this machine's."""
    arguments = replace_flags(plan.engine_args, model=folder, host=host, port=port)
    return [sys.executable, "-m", "pagefleet_engine", *arguments]


def engine_environment(plan: ServingPlan) -> dict[str, str]:
    threads = {} if plan.on_gpu else {"OMP_NUM_THREADS": str(thread_count(plan))}
    return {**os.environ, "HF_HUB_OFFLINE": "1", **threads}


def run_engine(command: list[str], environment: Mapping[str, str]) -> int:
    """Until it ends; a signal to stop is handed on, so that the engine drains."""
    process = subprocess.Popen(command, env=dict(environment))

    def hand_on(number: int, _: FrameType | None) -> None:
        process.send_signal(number)

    # A terminal sends ctrl-C to the engine by itself.
    before = [
        (number, signal.signal(number, handler))
        for number, handler in ((signal.SIGTERM, hand_on), (signal.SIGINT, signal.SIG_IGN))
    ]
    try:
        return process.wait()
    finally:
        for number, handler in before:
            signal.signal(number, handler)
