"""`make gpu-check` as far as it needs no GPU.

Covered: bytes and operations worked out by hand, marks, verdicts, tables, the time budget, what
becomes of stages that fail or hang, the engine's run on a CPU, a machine without a GPU. Left out:
everything that a GPU does.
"""

import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bench import gpu_check
from bench.gpu import (
    attention,
    ceilings,
    compiling,
    correctness,
    floors,
    marks,
    matmuls,
    memory_bound,
    model_folder,
    sanitizer,
)
from bench.gpu.budget import LEAST_STAGE_SECONDS, TOTAL_SECONDS, WRITING_SECONDS, Budget
from bench.gpu.cases import Case, Ceilings, Compared, Known, checked, distance, timed, timed_row
from bench.gpu.distribution import chi_square_p
from bench.gpu.engine import agreement_row, memory_row, seed_row
from bench.gpu.engine_run import run
from bench.gpu.rows import Row, from_json, markdown, to_json
from bench.gpu.stages import STAGES
from bench.gpu.timing import Call, Timing, buffers_for
from tests.support.tiny_model import save_tiny_model


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("bfloat16", 512), ("int8", 264), ("fp8_e4m3", 264), ("int8k_int4v", 212), ("int4", 160)],
)
def test_a_token_takes_its_codes_and_scales(mode: str, expected: int) -> None:
    assert floors.kv_token_bytes(mode, num_kv_heads=1, head_dim=128) == expected


def test_decoding_reads_each_key_and_value_once() -> None:
    found = floors.decode_bytes("bfloat16", [10, 20], num_heads=4, num_kv_heads=1, head_dim=128)
    assert found == 30 * 512 + 2 * 2 * 4 * 128 * 2


def test_prefill_counts_what_each_token_sees() -> None:
    one = floors.prefill_flops([(3, 0)], num_heads=1, head_dim=1)
    assert one == 4 * (1 + 2 + 3)
    assert floors.prefill_flops([(2, 5)], num_heads=2, head_dim=3) == 4 * 2 * 3 * (6 + 7)


def test_other_floors() -> None:
    assert floors.store_bytes("int8", 2, num_kv_heads=1, head_dim=128) == 2 * (512 + 264)
    turned = floors.rope_store_bytes("int8", 2, num_heads=4, num_kv_heads=1, head_dim=128)
    assert turned == 2 * (512 + 264) + 2 * 2 * 4 * 256
    assert floors.add_norm_bytes(3, 5) == 4 * 3 * 5 * 2
    assert floors.silu_mul_bytes(3, 5) == 3 * 3 * 5 * 2
    assert floors.block_copy_bytes(2, 100) == 400
    assert floors.sampling_bytes(2, 100, 4) == 800
    assert floors.fp8_matmul_bytes(1, 16, 8) == 16 * 8 + 4 * 8 + 2 * 24
    per_weight = floors.int4_matmul_bytes(0, 4096, 4096) / 4096**2
    assert per_weight == 0.5 + 2.5 / 128


def test_marks_hold_where_a_kernel_can_fill_the_machine() -> None:
    assert marks.decode_mark("bfloat16", batch=128, length=4096) == 0.85
    assert marks.decode_mark("int4", batch=128, length=4096) == 0.60
    assert marks.decode_mark("bfloat16", batch=1, length=32768) == 0.70
    assert marks.decode_mark("bfloat16", batch=8, length=8192) is None
    assert marks.most_ratio("int8", bf16_bytes=1 << 30) == 0.62
    assert marks.most_ratio("int8", bf16_bytes=1 << 29) is None
    assert marks.most_ratio("bfloat16", bf16_bytes=1 << 40) is None
    assert marks.prefill_mark("bfloat16", query_len=8192, cached=0) == 0.60
    assert marks.prefill_mark("bfloat16", query_len=512, cached=7680) is None
    assert marks.elementwise_mark(32 << 20) == 0.85
    assert marks.elementwise_mark(1 << 20) is None
    assert marks.int4_matmul_mark(16) == 0.70 and marks.int4_matmul_mark(64) is None


ALL_CASES = {
    "decode": attention.decode_cases,
    "prefill": attention.prefill_cases,
    "memory": memory_bound.cases,
    "sampling": memory_bound.sampling_cases,
    "matmul": matmuls.cases,
}


@pytest.mark.parametrize("stage", ALL_CASES)
def test_cases_have_names_of_their_own_and_a_floor(stage: str) -> None:
    cases = ALL_CASES[stage]()
    names = [case.name for case in cases]
    assert len(names) == len(set(names))
    assert all(case.num_bytes > 0 or case.flops > 0 for case in cases)
    for index, case in enumerate(cases):
        assert case.base is None or case.base in names[:index], "its base was measured before it"


def test_every_mark_is_asked_for_somewhere() -> None:
    cases = [case for make in ALL_CASES.values() for case in make()]
    modes = {case.name.rsplit(" ", 1)[1] for case in attention.decode_cases() if case.mark}
    assert modes == set(marks.DECODE_MARKS)
    assert {case.most_ratio for case in cases} == {None, 0.62, 0.45}
    for name in ("8192 bfloat16", "add + RMSNorm 16384 x 4096", "block copy, 256 of 2 MiB"):
        assert next(case for case in cases if case.name == name).mark is not None


def test_references_need_no_gpu() -> None:
    checks = {check.name: check for check in correctness.checks()}
    assert len(checks) == len(correctness.checks())
    for name in ("KV write int4", "SiLU-mul", "block copy", "int4 matmul, 17 rows"):
        assert checks[name].reference(torch.device("cpu")).numel() > 0


def row(**given: object) -> Row:
    return Row(stage="s", name="n", **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        ({}, "-"),
        ({"share": 0.9}, "-"),
        ({"share": 0.9, "mark": 0.85}, "pass"),
        ({"share": 0.8, "mark": 0.85}, "FAIL"),
        ({"mark": 0.85}, "FAIL"),
        ({"error": 0.0, "tolerance": 0.0}, "pass"),
        ({"error": 2e-3, "tolerance": 1e-3}, "FAIL"),
        ({"ratio": 0.5, "most_ratio": 0.62}, "pass"),
        ({"ratio": 0.7, "most_ratio": 0.62, "share": 0.9, "mark": 0.85}, "FAIL"),
        ({"ratio": 0.7}, "-"),
        ({"failed": "RuntimeError: no"}, "FAIL"),
    ],
)
def test_a_row_passes_when_all_that_is_asked_of_it_holds(
    given: dict[str, object], verdict: str
) -> None:
    assert row(**given).verdict == verdict
    assert from_json(to_json(row(**given))).verdict == verdict


def test_the_table_shows_rates_marks_and_what_failed() -> None:
    rows = [
        row(microseconds=12.34, spread=0.01, rate=3000.0, unit="GB/s", share=0.7, mark=0.85),
        row(failed="RuntimeError: a | b\nc", note="unseen"),
    ]
    text = markdown(rows, title="T", machine="M")
    assert "0 passed, 2 failed, 0 only reported" in text
    assert "| n | 12.3 | 1.0% | 3000.0 GB/s | 70.0% | 85% |  | FAIL |  |" in text
    assert "RuntimeError: a / b c" in text


def test_a_timing_is_compared_with_the_ceiling_that_limits_it() -> None:
    known = Ceilings(copy_bytes_per_second=4e12, matmul_flops_per_second=8e14)
    case = Case(name="n", prepare=lambda device: [], num_bytes=2e9, mark=0.4, most_ratio=0.5)
    found = timed_row("s", case, Timing(1e-3, 0.0), known, base=4e-3)
    assert (found.rate, found.unit, found.share, found.ratio) == (2000.0, "GB/s", 0.5, 0.25)
    case = Case(name="n", prepare=lambda device: [], num_bytes=2e9, flops=4e11)
    found = timed_row("s", case, Timing(1e-3, 0.0), known, base=None)
    assert (found.rate, found.unit, found.share, found.ratio) == (400.0, "TFLOP/s", 0.5, None)
    assert timed_row("s", case, Timing(1e-3, 0.0), None, base=None).share is None


def test_what_is_not_a_number_is_infinitely_wrong() -> None:
    one = torch.ones(4)
    assert distance(Compared(one, one), is_share=False) == 0.0
    assert distance(Compared(one * 1.5, one), is_share=False) == 0.5
    assert distance(Compared(one * torch.nan, one), is_share=False) == float("inf")
    assert distance(Compared(one[:2], one), is_share=True) == float("inf")
    assert distance(Compared(torch.tensor([1, 2]), torch.tensor([1, 3])), is_share=True) == 0.5


def test_small_problems_are_rotated_until_the_cache_is_too_small() -> None:
    assert buffers_for(1 << 40) == 1
    assert buffers_for(128 << 20) == 2
    assert buffers_for(0) == 64


def test_both_ceilings_are_read_from_the_first_stage() -> None:
    rows = [
        Row(stage="machine", name="copy", rate=4000.0, unit="GB/s"),
        Row(stage="machine", name="matmul", rate=700.0, unit="TFLOP/s"),
        Row(stage="decode", name="other", rate=1.0, unit="GB/s"),
    ]
    assert ceilings.read(rows) == Ceilings(4e12, 7e14)
    assert ceilings.read(rows[1:]) is None


def test_no_stage_is_begun_that_could_not_end_in_time() -> None:
    now = 1000.0
    budget = Budget(now, lambda: now, total_seconds=100.0)
    assert budget.limit(later=55.0) == 40.0
    now = 1060.0
    assert budget.limit(later=0.0) == 35.0
    assert budget.limit(later=20.1) is None


def test_every_stage_has_the_time_that_it_was_promised() -> None:
    assert sum(stage.seconds for stage in STAGES) <= TOTAL_SECONDS - WRITING_SECONDS
    assert all(stage.seconds >= LEAST_STAGE_SECONDS for stage in STAGES)
    assert len({stage.name for stage in STAGES}) == len(STAGES)


def test_kernels_are_shared_out_and_each_is_compiled_by_one_process() -> None:
    groups = compiling.launches()
    parts = [compiling.share(groups, index, 5) for index in range(5)]
    assert sum(map(len, parts)) == sum(map(len, groups)) > len(groups)
    decode = [group for group in groups if len(group) == len(attention.BATCHES) + 1]
    assert len(decode) == len(attention.MODES), "a mode's plain and ragged batches"


def test_processes_that_compile_for_too_long_are_ended() -> None:
    quick, slow = (subprocess.Popen(["sleep", seconds]) for seconds in ("0", "60"))
    assert compiling.finishes(quick, by=time.perf_counter() + 20)
    assert not compiling.finishes(slow, by=time.perf_counter())
    assert slow.returncode == -signal.SIGKILL


def test_a_stage_that_is_begun_again_makes_what_is_missing() -> None:
    def fail(device: torch.device) -> list[Call]:
        raise RuntimeError("no such kernel")

    cases = [Case(name=name, prepare=fail, num_bytes=1.0) for name in ("a", "b")]
    known = Known(rows={"a": Row(stage="s", name="a", microseconds=5.0)})
    found = list(timed("s", cases, known))
    assert [(each.name, each.verdict) for each in found] == [("b", "FAIL")]
    only = [check for check in correctness.checks() if check.name == "block copy"]
    done = Known(rows={"block copy": Row(stage="s", name="block copy")})
    assert list(checked("s", only, done)) == []


def test_a_model_is_written_where_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_folder, "MEMORY", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path.parent))
    for roomier in (tmp_path, tmp_path.parent):
        monkeypatch.setattr(
            model_folder, "free_bytes", lambda folder, best=roomier: int(folder == str(best))
        )
        assert model_folder.roomiest_folder() == str(roomier)
    monkeypatch.setattr(model_folder, "MEMORY", str(tmp_path / "absent"))
    assert model_folder.roomiest_folder() == str(tmp_path.parent)


def test_a_missing_sanitizer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizer, "TOOL", "no-such-tool")
    (found,) = sanitizer.rows()
    assert found.verdict == "-" and "was not found" in found.note


@pytest.mark.parametrize(
    ("code", "said", "verdict", "text"),
    [
        (0, "========= ERROR SUMMARY: 0 errors\n", "pass", "ERROR SUMMARY: 0 errors"),
        (9, "x\n========= Invalid __global__ read of size 16\n", "FAIL", "code 9: Invalid __glob"),
        (1, "========= COMPUTE-SANITIZER\nno driver\n", "FAIL", "code 1: COMPUTE-SANITIZER no dr"),
    ],
)
def test_what_the_sanitizer_says_is_a_verdict(
    code: int, said: str, verdict: str, text: str
) -> None:
    found = sanitizer.outcome("n", code, said)
    assert found.verdict == verdict
    assert text in (found.failed or found.note)


def test_rows_survive_a_stage_that_breaks(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_text(to_json(row(share=1.0)) + "\n" + '{"stage": "s", "na')
    assert [each.share for each in gpu_check.read_rows(path)] == [1.0]
    assert gpu_check.read_rows(tmp_path / "absent") == []


@pytest.fixture
def parent_of_sleepers(tmp_path: Path) -> Iterator[list[str]]:
    """A process that starts another one, tells its id, and waits."""
    code = (
        "import subprocess, sys, pathlib\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        f"pathlib.Path({str(tmp_path / 'child')!r}).write_text(str(child.pid))\n"
        "child.wait()\n"
    )
    yield [sys.executable, "-c", code]


def test_a_stage_that_hangs_is_ended_with_all_that_it_started(
    parent_of_sleepers: list[str], tmp_path: Path
) -> None:
    ended = gpu_check.run_command(parent_of_sleepers, limit=4.0)
    assert ended == gpu_check.Ended(None, "it was ended after 4 s")
    child = int((tmp_path / "child").read_text())
    for _ in range(200):  # the kernel takes its time to end what was killed
        if has_ended(child):
            break
        time.sleep(0.05)
    assert has_ended(child)


def has_ended(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


def test_a_stage_that_fails_says_why() -> None:
    command = [sys.executable, "-c", "raise ValueError('no such kernel')"]
    ended = gpu_check.run_command(command, limit=30.0)
    assert ended == gpu_check.Ended(1, "code 1: ValueError: no such kernel")
    assert gpu_check.run_command([sys.executable, "-c", "pass"], limit=30.0).problem is None


# Stands for the script: rows it makes are those that the file lacks, until it ends as told.
STAGE = """
import json, pathlib, signal, sys, time
path = pathlib.Path(sys.argv[4])
count = len(path.read_text().splitlines())
with path.open("a") as file:
    for index in range(count, {made}):
        print(json.dumps({{"stage": sys.argv[2], "name": f"row {{index}}"}}), file=file, flush=True)
        if index % 2:
            sys.exit({code})
    file.write('{{"stage": "cut')
    file.flush()
    time.sleep({seconds})
"""


def staged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, made: int, code: int, seconds: int = 0
) -> Path:
    script = tmp_path / "stage.py"
    script.write_text(STAGE.format(made=made, code=code, seconds=seconds))
    monkeypatch.setattr(gpu_check, "__file__", str(script))
    path = tmp_path / "rows"
    path.write_text("")
    return path


def run_staged(path: Path) -> list[tuple[str, str | None]]:
    gpu_check.run_within(Budget(time.monotonic(), time.monotonic), "s", path, later=0.0)
    return [(each.name, each.failed) for each in gpu_check.read_rows(path)]


def test_a_stage_that_lost_the_device_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = staged(tmp_path, monkeypatch, made=5, code=gpu_check.CONTEXT_LOST)
    assert run_staged(path) == [(f"row {index}", None) for index in range(5)]


def test_a_stage_that_crashed_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = staged(tmp_path, monkeypatch, made=5, code=3)
    found = run_staged(path)
    assert found[:2] == [("row 0", None), ("row 1", None)]
    assert found[2:] == [("the rest", "code 3: no message (after row 1)")]


def test_a_check_that_is_asked_to_end_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half_a_stage(budget: Budget, name: str, path: Path, *, later: float) -> None:
        gpu_check.write_rows(path, [row(share=1.0)])
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setenv("TMPDIR", str(tmp_path))  # put back afterwards
    monkeypatch.setattr(gpu_check, "run_within", half_a_stage)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit, match="143"):
            gpu_check.run_all("a machine", tmp_path / "out")
    finally:
        signal.signal(signal.SIGTERM, handler)
    text = (tmp_path / "out/gpu_check.md").read_text()
    assert "| n |" in text and "SystemExit(143)" in text


def test_results_are_written_as_markdown_and_json(tmp_path: Path) -> None:
    gpu_check.write([row(share=1.0, mark=0.5)], tmp_path / "out", "a machine")
    assert "1 passed, 0 failed" in (tmp_path / "out/gpu_check.md").read_text()
    assert '"verdict": "pass"' in (tmp_path / "out/gpu_check.json").read_text()


def test_without_a_gpu_the_dry_run_is_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "")  # put back afterwards
    monkeypatch.setattr(sys, "argv", ["gpu_check"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(gpu_check, "dry_run", lambda: 2)
    assert gpu_check.main() == 2


def test_the_dry_run_says_what_was_not_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = [check for check in correctness.checks() if check.name == "block copy"]
    monkeypatch.setattr(correctness, "checks", lambda: few)
    assert gpu_check.dry_run() == 2
    said = capsys.readouterr().out
    assert said.startswith("no CUDA device is visible here") and "1 references ran" in said


def test_the_engine_answers_with_tokens_speed_and_memory(tmp_path: Path) -> None:
    settings = {
        "model": str(save_tiny_model(tmp_path)),
        "device": "cpu",
        "dtype": "float32",
        "max_model_len": 64,
        "num_gpu_blocks_override": 32,
        "device_memory_bytes": 8 << 30,
    }
    answer = run(
        settings, prompts=2, prompt_tokens=5, new_tokens=4, sampled_tokens=6, vocabulary=(1, 200)
    )
    assert [len(tokens) for tokens in answer["tokens"]] == [4, 4]
    assert answer["errors"] == [] and answer["tokens_per_second"] > 0
    assert memory_row("r", answer).verdict == "pass"
    same = agreement_row("a", "b", answer["tokens"], answer["tokens"])
    assert same.error == 0.0 and same.verdict == "pass"
    other = [[token + 1 for token in each] for each in answer["tokens"]]
    assert agreement_row("a", "b", answer["tokens"], other).verdict == "FAIL"
    alone, in_a_batch = answer["sampled"]
    assert len(alone) == 6 and seed_row("r", alone, in_a_batch).verdict == "pass"
    assert seed_row("r", alone, [*in_a_batch[:5], -1]).verdict == "FAIL"


def test_chi_square_has_the_tail_that_is_known() -> None:
    half = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    assert chi_square_p(torch.tensor([60, 40, 0]), half) == pytest.approx(0.0455, abs=1e-4)
    assert chi_square_p(torch.tensor([50, 50, 0]), half) == 1.0
    assert chi_square_p(torch.tensor([50, 49, 1]), half) == 0.0, "an impossible one was drawn"
    thirds = torch.full((3,), 1 / 3, dtype=torch.float64)
    tail = chi_square_p(torch.tensor([120, 100, 80]), thirds)
    assert tail == pytest.approx(math.exp(-4)), "of 8, with 2 degrees of freedom"
