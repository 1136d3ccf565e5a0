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
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOTS = [str(ROOT), str(ROOT / "kernels"), str(ROOT / "engine")]
sys.path[:0] = ROOTS

from bench.gpu.budget import Budget  # noqa: E402
from bench.gpu.rows import FAILED, Row, from_json, markdown, to_json  # noqa: E402

TITLE = "The kernels and the engine on a GPU"
CONTEXT_LOST = 75  # how a stage ends that has to be begun anew
NO_GPU = "no CUDA device is visible here: nothing was measured"


def main() -> int:
    parser = argparse.ArgumentParser(description="Check and measure on one GPU.")
    parser.add_argument("--stage", help="run one stage in this process")
    parser.add_argument("--rows", type=Path, help="rows of the stages before; --stage adds its own")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([*ROOTS, os.environ.get("PYTHONPATH", "")])
    os.environ.pop("TRITON_INTERPRET", None)
    if options.stage:
        return run_stage(options.stage, options.rows)
    import torch

    if not torch.cuda.is_available():
        return dry_run()
    return run_all(machine(), Path(os.environ.get("OUT", ROOT / "bench" / "results")))


def machine() -> str:
    import torch
    import triton

    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    return (
        f"{found.name}, sm_{found.major}{found.minor}, {found.multi_processor_count} processors, "
        f"{found.total_memory / 2**30:.0f} GiB, torch {torch.__version__}, "
        f"CUDA {torch.version.cuda}, Triton {triton.__version__}."
    )


def run_all(about: str, folder: Path) -> int:
    """Every stage in a process of its own; what is known is written after each, and if this
    process is asked to end."""
    from bench.gpu.model_folder import roomiest_folder
    from bench.gpu.stages import STAGES

    folder.mkdir(parents=True, exist_ok=True)
    path = (
        folder / "gpu_check.rows"
    )  # a line each, as they are made: left if this process is killed
    write_rows(path, [])
    signal.signal(signal.SIGTERM, end_orderly)
    budget = Budget(time.monotonic(), time.monotonic)
    try:
        with temporary_files_in(roomiest_folder()):
            for place, stage in enumerate(STAGES):
                later = sum(each.seconds for each in STAGES[place + 1 :])
                run_within(budget, stage.name, path, later=later)
                write(read_rows(path), folder, about)
    except BaseException as error:
        rows = [*read_rows(path), Row(stage="all", name="the rest", failed=f"{error!r}")]
        write(rows, folder, about)
        raise
    rows = read_rows(path)
    path.unlink()
    failed = [row for row in rows if row.verdict == FAILED]
    for row in failed:
        print(f"FAIL {row.stage}: {row.name}: {row.failed or 'below its mark'}")
    print(f"{len(rows)} rows, {len(failed)} failed; {folder / 'gpu_check.md'}")
    return 1 if failed else 0


@contextmanager
def temporary_files_in(parent: str) -> Iterator[None]:
    """Those of all stages, removed at the end: one that is killed leaves a model behind."""
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        os.environ["TMPDIR"] = folder
        yield


def end_orderly(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def run_within(budget: Budget, name: str, path: Path, *, later: float) -> None:
    """Run a stage, again if it lost the device but made rows; a row tells what went wrong."""
    while True:
        limit = budget.limit(later=later)
        if limit is None:
            failure = Row(stage=name, name="the rest", failed="no time was left for it")
            write_rows(path, [*read_rows(path), failure])
            return
        print(f"{name}: at most {limit:.0f} s", flush=True)
        before = len(read_rows(path))
        command = [sys.executable, __file__, "--stage", name, "--rows", path]
        ended = run_command(list(map(str, command)), limit=limit)
        rows = read_rows(path)
        write_rows(path, rows)  # without half a line, if that is how it ended
        if ended.code == CONTEXT_LOST and len(rows) > before:
            continue
        if ended.problem is not None:
            last = rows[-1].name if len(rows) > before else "its start"
            failed = f"{ended.problem} (after {last})"
            write_rows(path, [*rows, Row(stage=name, name="the rest", failed=failed)])
        return


@dataclass(frozen=True, slots=True)
class Ended:
    code: int | None  # None: it took too long
    problem: str | None


def run_command(command: list[str], *, limit: float) -> Ended:
    """Run it; why it did not end well, if so. What it started itself ends with it."""
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        _, said = running.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        return Ended(None, f"it was ended after {limit:.0f} s")
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.communicate()
    if running.returncode == 0:
        return Ended(0, None)
    last = (said.strip().splitlines() or ["no message"])[-1]
    return Ended(running.returncode, f"code {running.returncode}: {last}")


def read_rows(path: Path) -> list[Row]:
    """Whole lines only: the process may have been ended in the middle of one."""
    text = path.read_text() if path.exists() else ""
    return [from_json(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def write_rows(path: Path, rows: list[Row]) -> None:
    path.write_text("".join(f"{to_json(row)}\n" for row in rows))


def run_stage(name: str, path: Path | None) -> int:
    """Add the stage's rows to the file; without one they are only printed."""
    from bench.gpu import ceilings
    from bench.gpu.cases import ContextLostError, Known
    from bench.gpu.stages import STAGES

    stage = {each.name: each for each in STAGES}[name]
    rows = [] if path is None else read_rows(path)
    mine = {row.name: row for row in rows if row.stage == name}
    known = Known(ceilings=ceilings.read(rows), rows=mine)
    with nullcontext(sys.stdout) if path is None else path.open("a") as file:
        try:
            for row in stage.rows(known):
                print(to_json(row), file=file, flush=True)
        except ContextLostError:
            return CONTEXT_LOST
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
    code = main()
    if code == CONTEXT_LOST:
        os._exit(code)  # destructors would call the device once more
    sys.exit(code)
