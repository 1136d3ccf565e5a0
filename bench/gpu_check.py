"""Check and measure the kernels and the engine on one GPU: `make gpu-check`, at most 8 minutes.

Needs torch, Triton, Transformers and this clone; nothing is installed or downloaded. Results are
written after every stage, as gpu_check.md and gpu_check.json, to bench/results or to $OUT. A stage
that fails or takes too long is recorded, and the next one begins. Ends with 1 if something failed,
with 2 if there is no GPU.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOTS = [str(ROOT), str(ROOT / "kernels"), str(ROOT / "engine")]
sys.path[:0] = ROOTS

from bench.gpu.budget import Budget  # noqa: E402
from bench.gpu.rows import FAILED, Row, from_json, markdown, to_json  # noqa: E402

TITLE = "The kernels and the engine on a GPU"
NO_GPU = "no CUDA device is visible here: nothing was measured"


def main() -> int:
    parser = argparse.ArgumentParser(description="Check and measure on one GPU.")
    parser.add_argument("--stage", help="run one stage in this process")
    parser.add_argument("--rows", type=Path, help="where --stage writes its rows, a line each")
    parser.add_argument("--known", type=Path, help="rows of the stages before")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([*ROOTS, os.environ.get("PYTHONPATH", "")])
    os.environ.pop("TRITON_INTERPRET", None)
    if options.stage:
        return run_stage(options.stage, options.rows, options.known)
    import torch

    if not torch.cuda.is_available():
        return dry_run()
    return run_all(machine(), Path(os.environ.get("OUT", ROOT / "bench" / "results")))


def machine() -> str:
    import torch
    import triton

    name, capability = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
    return (
        f"{name}, sm_{capability[0]}{capability[1]}, torch {torch.__version__}, "
        f"Triton {triton.__version__}."
    )


def run_all(about: str, folder: Path) -> int:
    """Every stage in a process of its own; what is known is written after each."""
    from bench.gpu.stages import STAGES

    budget = Budget(time.monotonic(), time.monotonic)
    rows: list[Row] = []
    for stage in STAGES:
        limit = budget.limit(stage.seconds)
        if limit is None:
            rows.append(Row(stage=stage.name, name="all", failed="no time was left for it"))
        else:
            print(f"{stage.name}: at most {limit:.0f} s", flush=True)
            rows += run_apart(stage.name, rows, limit=limit)
        write(rows, folder, about)
    failed = [row for row in rows if row.verdict == FAILED]
    for row in failed:
        print(f"FAIL {row.stage}: {row.name}: {row.failed or 'below its mark'}")
    print(f"{len(rows)} rows, {len(failed)} failed; {folder / 'gpu_check.md'}")
    return 1 if failed else 0


def run_apart(name: str, known: list[Row], *, limit: float) -> list[Row]:
    """The rows that the stage wrote, and one more if it did not end well."""
    with tempfile.TemporaryDirectory() as folder:
        made, before = Path(folder, "rows"), Path(folder, "known")
        before.write_text("".join(f"{to_json(row)}\n" for row in known))
        command = [sys.executable, __file__, "--stage", name, "--rows", made, "--known", before]
        problem = ended_badly(list(map(str, command)), limit=limit)
        rows = read_rows(made)
    if problem is not None:
        rows.append(Row(stage=name, name="the rest", failed=problem))
    return rows


def ended_badly(command: list[str], *, limit: float) -> str | None:
    """Run it; why it did not end well, if so. What it started itself ends with it."""
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        _, said = running.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate()
        return f"it was ended after {limit:.0f} s"
    return None if running.returncode == 0 else (said.strip().splitlines() or ["no message"])[-1]


def read_rows(path: Path) -> list[Row]:
    """Whole lines only: the process may have been ended in the middle of one."""
    text = path.read_text() if path.exists() else ""
    return [from_json(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def run_stage(name: str, rows: Path, known: Path) -> int:
    from bench.gpu import ceilings
    from bench.gpu.stages import STAGES

    stage = {each.name: each for each in STAGES}[name]
    measured = ceilings.read(read_rows(known))
    with rows.open("w") as file:
        for row in stage.rows(measured):
            print(to_json(row), file=file, flush=True)
    return 0


def write(rows: list[Row], folder: Path, about: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({**json.loads(to_json(row)), "verdict": row.verdict}) for row in rows]
    (folder / "gpu_check.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
    (folder / "gpu_check.md").write_text(markdown(rows, title=TITLE, machine=about))


def dry_run() -> int:
    """Make the inputs of every comparison and run its reference, on the CPU."""
    import torch

    from bench.gpu import attention, correctness, matmuls, memory_bound

    cases = [
        *attention.decode_cases(),
        *attention.prefill_cases(),
        *memory_bound.cases(),
        *memory_bound.sampling_cases(),
        *matmuls.cases(),
    ]
    checks = correctness.checks()
    for check in checks:
        check.reference(torch.device("cpu"))
    print(f"{NO_GPU}; {len(checks)} references ran on the CPU, {len(cases)} timings are ready")
    return 2


if __name__ == "__main__":
    sys.exit(main())
