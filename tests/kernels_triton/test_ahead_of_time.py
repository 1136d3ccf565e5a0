"""Every kernel compiled for sm_80, sm_90 and sm_100, in processes that do not interpret.

Covered: every gate of a sample (all of them take minutes: `python bench/aot.py`); that the results
in the repository are of the same variants, with every gate. Left out: their numbers, which differ
between versions of Triton.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from bench.aot_harness.registry import all_variants

ROOT = Path(__file__).resolve().parents[2]


def named(rows: list[dict[str, object]]) -> set[tuple[object, ...]]:
    return {(row["kernel"], row["variant"], row["arch"]) for row in rows}


def registered(*, tested: bool = False) -> set[tuple[object, ...]]:
    return {
        (each.kernel, each.variant, f"sm_{arch}")
        for each in all_variants()
        for arch in (each.tested_arches if tested else each.arches)
    }


def test_a_sample_of_variants_compiles_and_every_gate_holds(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench/aot.py"), "--tested", "--output", str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "aot.json").read_text())
    assert named(rows) == registered(tested=True)
    assert all(row["gates"] and all(row["gates"].values()) for row in rows)


def test_the_results_in_the_repository_are_of_these_variants_and_hold() -> None:
    rows = json.loads((ROOT / "bench/results/aot.json").read_text())
    assert named(rows) == registered()
    assert all(row["gates"] and all(row["gates"].values()) for row in rows)


def test_every_kernel_is_in_the_sample() -> None:
    assert {kernel for kernel, _, _ in registered(tested=True)} == {
        each.kernel for each in all_variants()
    }
