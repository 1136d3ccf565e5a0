"""Compile every kernel for sm_80, sm_90 and sm_100 without a GPU: `python bench/aot.py`.

Writes bench/results/aot.json and aot.md; ends with 1 if a gate does not hold.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.aot_harness.report import Row

ROOT = Path(__file__).resolve().parents[1]
ROOTS = [str(ROOT), str(ROOT / "kernels"), str(ROOT / "engine")]


def main() -> int:
    options = parse(sys.argv[1:])
    sys.path[:0] = ROOTS  # the clone is enough: nothing has to be installed
    os.environ["PYTHONPATH"] = os.pathsep.join([*ROOTS, os.environ.get("PYTHONPATH", "")])
    os.environ.pop("TRITON_INTERPRET", None)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("TRITON_CACHE_DIR", cache)
        failed = run(options)
    print(f"{time.perf_counter() - started:.0f} s")
    return 1 if failed else 0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument(
        "--only", nargs="+", metavar="KERNEL", help="compile these, keep the rows of the others"
    )
    parser.add_argument("--tested", action="store_true", help="compile only what tests compile")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> int:
    """How many compiled variants have a gate that does not hold."""
    from bench.aot_harness.compile import compile_kernel
    from bench.aot_harness.registry import all_variants
    from bench.aot_harness.report import make_row, write

    variants = all_variants()
    wanted = set(options.only or [each.kernel for each in variants])
    if unknown := wanted - {each.kernel for each in variants}:
        raise SystemExit(f"--only: no kernel is called {', '.join(sorted(unknown))}")
    variants = [each for each in variants if each.kernel in wanted]
    work = [
        (variant, arch)
        for variant in variants
        for arch in (variant.tested_arches if options.tested else variant.arches)
    ]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=spawn) as pool:
        begun = [(each, pool.submit(compile_kernel, each.source, arch)) for each, arch in work]
        rows = []
        for (each, compiling), (_, arch) in zip(begun, work, strict=True):
            try:
                rows.append(make_row(each, compiling.result()))
            except Exception as error:
                pool.shutdown(cancel_futures=True)
                raise SystemExit(f"{each.kernel} {each.variant} sm_{arch}: {error}") from error
    for row in rows:
        if row.failed or options.only:
            print(row)
    write(with_kept(rows, options), options.output, triton_version=version("triton"))
    failed = sum(1 for row in rows if row.failed)
    print(f"{len(rows)} compiled, {failed} with a gate that does not hold")
    return failed


def with_kept(rows: "list[Row]", options: argparse.Namespace) -> "list[Row]":
    """What was compiled now and, with --only, what was written of the other kernels before."""
    from bench.aot_harness.registry import all_variants
    from bench.aot_harness.report import read

    if options.only is None:
        return rows
    order = [(each.kernel, each.variant) for each in all_variants()]
    kept = [row for row in read(options.output) if row.kernel not in options.only]
    known = [row for row in (*kept, *rows) if (row.kernel, row.variant) in order]
    return sorted(known, key=lambda row: order.index((row.kernel, row.variant)))


if __name__ == "__main__":
    sys.exit(main())
