"""The check of other versions of Triton, without downloading or compiling one.

Covered: which versions there are, what becomes of a download that fails, of a folder with another
version, of a check that fails; the table, also the one in the repository.
Left out: the checks themselves (`make kernels`).
"""

import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from bench.aot_harness.registry import all_variants
from bench.aot_harness.report import Row
from bench.triton_window.checks import COMPILED, ROOT, Check, carry_out, checks, require
from bench.triton_window.errors import WindowError
from bench.triton_window.packages import packages_of
from bench.triton_window.releases import RELEASES, Release
from bench.triton_window.table import table

RELEASE = Release(triton="3.6.0", numpy="2.3.5")


def row(kernel: str, registers: int, *, spill_bytes: int = 0) -> Row:
    return Row(
        kernel=kernel,
        variant="int8-d128",
        arch="sm_90",
        registers=registers,
        spill_bytes=spill_bytes,
        shared_bytes=1024,
        gates={"no_spills": spill_bytes == 0, "fits_shared": True},
    )


def tool(folder: Path, script: str) -> Path:
    """A stand-in for uv."""
    path = folder / "uv"
    path.write_text(f"#!{sys.executable}\nimport sys\nfrom pathlib import Path\n{script}\n")
    path.chmod(0o755)
    return path


def declared() -> Requirement:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (found,) = [
        each for each in project["optional-dependencies"]["engine"] if each.startswith("triton")
    ]
    return Requirement(found)


def locked() -> str:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    (found,) = [Requirement(line) for line in lines if line.startswith("triton==")]
    return next(iter(found.specifier)).version


def test_the_declared_range_is_what_is_checked() -> None:
    checked = [*(each.triton for each in RELEASES), locked()]
    assert [each.rsplit(".", 1)[0] for each in checked] == ["3.6", "3.7", "3.8", "3.9"]
    assert all(each in declared().specifier for each in checked)
    assert not [each for each in ("3.5.1", "3.10.0") if each in declared().specifier]


def test_a_test_run_checks_the_oldest_and_the_newest_that_is_not_locked() -> None:
    assert [each.triton for each in RELEASES if each.is_tested] == ["3.6.0", "3.8.0"]


def test_packages_are_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEFLEET_CACHE", str(tmp_path / "cache"))
    script = (
        'target = Path(sys.argv[sys.argv.index("--target") + 1])\n'
        'target.mkdir()\n(target / "given").write_text(" ".join(sys.argv[-2:]))'
    )
    folder = packages_of(RELEASE, uv=tool(tmp_path, script))
    assert (folder / "given").read_text() == "triton==3.6.0 numpy==2.3.5"
    assert folder.is_relative_to(tmp_path / "cache")
    assert packages_of(RELEASE, uv=tmp_path / "none") == folder


def test_a_version_that_cannot_be_had_is_an_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEFLEET_CACHE", str(tmp_path / "cache"))
    script = 'Path(sys.argv[sys.argv.index("--target") + 1]).mkdir()\nsys.exit("no such host")'
    with pytest.raises(WindowError, match=r"triton==3.6.0 and numpy==2.3.5(.|\n)*no such host"):
        packages_of(RELEASE, uv=tool(tmp_path, script))
    with pytest.raises(WindowError, match="make dev"):
        packages_of(RELEASE, uv=tmp_path / "none")


def test_another_version_than_the_named_one_is_not_checked(tmp_path: Path) -> None:
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton/__init__.py").write_text('__version__ = "3.6.1"\n')
    with pytest.raises(WindowError, match=r"3\.6\.0 would be checked, 3\.6\.1 is in"):
        require(RELEASE, tmp_path)
    (tmp_path / "triton/__init__.py").write_text('__version__ = "3.6.0"\n')
    require(RELEASE, tmp_path)


@pytest.mark.parametrize(("code", "is_well"), [("print('a')", True), ("1 / 0", False)])
def test_a_check_is_a_process_that_imports_the_packages_first(
    tmp_path: Path, code: str, is_well: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton/__init__.py").write_text(
        "import os\nassert not set(os.environ) & {'TRITON_INTERPRET'}"
    )
    check = Check(name="imported", command=(sys.executable, "-c", f"import triton; {code}"))
    outcome = carry_out(RELEASE, check, tmp_path)
    assert outcome.is_well == is_well
    assert outcome.said.endswith("a" if is_well else "ZeroDivisionError: division by zero")


def test_the_sample_is_of_kernels_that_there_are(tmp_path: Path) -> None:
    assert set(COMPILED) <= {each.kernel for each in all_variants()}
    _, sample = checks(tmp_path, is_full=False, jobs=1)
    _, every = checks(tmp_path, is_full=True, jobs=2)
    assert set(COMPILED) <= set(sample.command) and not set(COMPILED) & set(every.command)


def test_the_table_names_what_fails() -> None:
    rows_of = {
        "3.8.0": [row("decode", 168), row("prefill", 255), row("kv_write", 44)],
        "3.6.0": [row("decode", 128, spill_bytes=8), row("decode", 90)],
    }
    lines = table(rows_of).splitlines()
    assert lines[-4:] == [
        "| 3.6.0 | 2 | 1 | 128 | 0 | 0 | 8 |",
        "| 3.8.0 | 3 | 0 | 168 | 255 | 44 | 0 |",
        "",
        "- Triton 3.6.0: decode int8-d128 sm_90: no_spills (128 registers, 8 B)",
    ]


def test_the_table_in_the_repository_has_every_version_and_none_fails() -> None:
    text = (ROOT / "bench/results/aot_versions.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| 3.")]
    assert [each[0] for each in rows] == [*(each.triton for each in RELEASES), locked()]
    assert all(int(each[1]) > 300 and each[2] == "0" and each[-1] == "0" for each in rows)
