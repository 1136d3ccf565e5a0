"""Both checks of one release, each in processes that import its packages before any other."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.triton_window.errors import WindowError
from bench.triton_window.releases import Release

ROOT = Path(__file__).resolve().parents[2]
ROOTS = [str(ROOT), str(ROOT / "kernels"), str(ROOT / "engine")]
TESTS = "tests/kernels_triton"
# That the interpreter's numbers are put right, then a kernel of each kind.
INTERPRETED = (
    f"{TESTS}/test_interpreter_numbers.py",
    f"{TESTS}/test_attention_kernel.py::test_a_mode_loses_what_it_is_known_to_lose",
    f"{TESTS}/test_store_kernel.py::test_a_broken_row_stays_broken_and_alone",
)
# Those that come near to the registers that there are, or use many kinds of instruction.
COMPILED = (
    "decode",
    "prefill",
    "split_reduction",
    "kv_write",
    "sampling_threshold",
    "sampling_draw",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A command that ends with 0 if all is well."""

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a check came to."""

    release: Release
    check: Check
    is_well: bool
    seconds: float
    said: str


def checks(output: Path, *, is_full: bool, jobs: int) -> tuple[Check, ...]:
    """Compiled variants are described in `output`, as bench/aot.py does."""
    compile_them = [sys.executable, str(ROOT / "bench/aot.py"), "--output", str(output)]
    compile_them += ["--jobs", str(jobs), *([] if is_full else ["--tested", "--only", *COMPILED])]
    interpret = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *INTERPRETED]
    # Triton 3.6 with NumPy 2.3: a warning of what NumPy 2.4 no longer does.
    interpret += ["-W", "ignore:Conversion of an array:DeprecationWarning"]
    return (
        Check(name="interpreted", command=tuple(interpret)),
        Check(name="compiled", command=tuple(compile_them)),
    )


def environment(packages: Path, outer: Mapping[str, str]) -> dict[str, str]:
    """The folder before everything that is installed; kernels neither interpreted nor cached."""
    unset = ("TRITON_INTERPRET", "TRITON_CACHE_DIR")
    paths = [str(packages), *ROOTS, *filter(None, [outer.get("PYTHONPATH")])]
    kept = {name: value for name, value in outer.items() if name not in unset}
    return {**kept, "PYTHONPATH": os.pathsep.join(paths)}


def require(release: Release, packages: Path) -> None:
    """WindowError unless these packages are what a process would import."""
    command = [sys.executable, "-c", "import triton; print(triton.__version__)"]
    done = subprocess.run(
        command, env=environment(packages, os.environ), capture_output=True, text=True
    )
    if done.stdout.strip() != release.triton:
        raise WindowError(
            f"Triton {release.triton} would be checked, {done.stdout.strip() or 'none'} is in "
            f"{packages}: remove that folder, it is downloaded again. {done.stderr.strip()[-500:]}"
        )


def carry_out(release: Release, check: Check, packages: Path) -> Outcome:
    started = time.perf_counter()
    done = subprocess.run(
        check.command,
        env=environment(packages, os.environ),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return Outcome(
        release=release,
        check=check,
        is_well=done.returncode == 0,
        seconds=time.perf_counter() - started,
        said=(done.stdout + done.stderr).strip(),
    )
