"""The demo without Kubernetes: the same spec and plan, one engine as a child process."""

import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from e2e.cluster.errors import ComponentCrashed, NotReadyInTime
from e2e.cluster.progress import Progress
from e2e.demo.answer import show_answer, show_metrics
from e2e.model import model_folder
from e2e.stack import ROOT
from e2e.support.chat import get_text

EXAMPLE = ROOT / "examples" / "smollm2-cpu.yaml"
READY_WITHIN = 300.0


def run_on_this_machine(progress: Progress) -> None:
    console = Console()
    with progress.step("unpack the model", usually=30):
        folder = model_folder()
    manifest = yaml.safe_load(EXAMPLE.read_text())
    manifest["spec"]["model"]["uri"] = f"file://{folder}"
    port = _free_port()
    with tempfile.TemporaryDirectory() as scratch:
        spec = Path(scratch) / EXAMPLE.name
        spec.write_text(yaml.safe_dump(manifest))
        command = [sys.executable, "-m", "pagefleet_operator.cli", "run", "-f", str(spec)]
        engine = subprocess.Popen([*command, "--port", str(port)])
        try:
            url = f"http://127.0.0.1:{port}"
            with progress.step("wait until the engine is ready", usually=30):
                _wait_ready(engine, url)
            show_answer(console, url, _served_name(manifest))
            show_metrics(console, url)
        finally:
            engine.send_signal(signal.SIGTERM)
            engine.wait(timeout=60)
    console.print("\nKeep it running yourself:")
    console.out(f"  pagefleet run -f SPEC.yaml   # with model.uri file://{folder}", highlight=False)


def _served_name(manifest: dict[str, Any]) -> str:
    return str(manifest["spec"]["model"].get("name", manifest["metadata"]["name"]))


def _wait_ready(engine: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + READY_WITHIN
    while time.monotonic() < deadline:
        if engine.poll() is not None:
            raise ComponentCrashed("the engine", "its output is above")
        try:
            get_text(f"{url}/ready")
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.5)
    raise NotReadyInTime(f"the engine was not ready after {READY_WITHIN:.0f} s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
