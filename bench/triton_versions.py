"""Check the kernels on the versions of Triton beside the locked one, without a GPU.

`python bench/triton_versions.py` interprets and compiles a sample with two of them, as `make
kernels` does; `--full` compiles every variant with all of them and writes
bench/results/aot_versions.md. Ends with 1 if something does not hold or a version cannot be had.
"""

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.aot_harness.report import read  # noqa: E402
from bench.triton_window.checks import Outcome, carry_out, checks, require  # noqa: E402
from bench.triton_window.errors import WindowError  # noqa: E402
from bench.triton_window.packages import packages_of  # noqa: E402
from bench.triton_window.releases import RELEASES, Release  # noqa: E402
from bench.triton_window.table import table  # noqa: E402

RESULTS = ROOT / "bench" / "results"


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the kernels on versions of Triton.")
    parser.add_argument("--full", action="store_true", help="every variant, every version")
    options = parser.parse_args()
    releases = [each for each in RELEASES if options.full or each.is_tested]
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as output:
        try:
            outcomes = check_all(releases, Path(output), is_full=options.full)
        except WindowError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        if options.full:
            write_table(releases, Path(output))
    print(f"{time.perf_counter() - started:.0f} s")
    return 0 if all(each.is_well for each in outcomes) else 1


def check_all(releases: list[Release], output: Path, *, is_full: bool) -> list[Outcome]:
    """The versions side by side, each on its share of the processors."""
    jobs = max(1, (os.cpu_count() or 1) // len(releases))
    folders = [packages_of(each) for each in releases]
    for release, packages in zip(releases, folders, strict=True):
        require(release, packages)

    def check_one(release: Release, packages: Path) -> list[Outcome]:
        outcomes = []
        for check in checks(output / release.triton, is_full=is_full, jobs=jobs):
            outcomes.append(carry_out(release, check, packages))
            show(outcomes[-1])
        return outcomes

    with ThreadPoolExecutor(len(releases)) as pool:
        return sum(pool.map(check_one, releases, folders), start=[])


def show(outcome: Outcome) -> None:
    """All that was said, or its last line but for the time if nothing is wrong."""
    name = f"Triton {outcome.release.triton}, {outcome.check.name}, {outcome.seconds:.0f} s"
    print(f"{name}: {'holds' if outcome.is_well else 'FAILS'}", flush=True)
    if not outcome.is_well:
        print(outcome.said, flush=True)


def write_table(releases: list[Release], output: Path) -> None:
    """With the locked version as bench/results/aot.json has it."""
    rows_of = {each.triton: read(output / each.triton) for each in releases}
    rows_of[version("triton")] = read(RESULTS)
    (RESULTS / "aot_versions.md").write_text(table(rows_of))


if __name__ == "__main__":
    sys.exit(main())
