"""The scorer of the memory model: what it reads, leaves out, prints, and how well it does."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.memory_scoring.figures import figure_errors, fit_errors, quantile
from bench.memory_scoring.gpus import read_gpu
from bench.memory_scoring.observations import score_file
from bench.memory_scoring.report import report, table
from bench.memory_scoring.settings import read_settings
from pagefleet_memory.vllm import Release
from tests.memory.observed_runs import CONFIGS, GIB

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("PAGEFLEET_SHARED_DATA") or ROOT.parent / "shared/data")
_ROW: dict[str, Any] = {
    "engine": "vllm",
    "version": "0.19.0",
    "config": "llama",
    "gpu": "NVIDIA-H100-80GB-HBM3",
    "gpu_mem_gib": 79.19,
    "tp": 1,
    "pp": 1,
    "gpu_memory_utilization": 0.95,
    "max_model_len": 8192,
    "max_num_seqs": 1024,
    "max_num_batched_tokens": 8192,
    "weights_gib": 14.99,
    "kv_cache_gib": 58.11,
    "kv_tokens": 476_016,
    "oom": False,
}


def _write(folder: Path, *rows: dict[str, Any]) -> Path:
    (folder / "llama.json").write_text(json.dumps(CONFIGS["llama_3_1_8b"]))
    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return data


def _settings(**changes: Any) -> Any:
    return read_settings({**_ROW, **changes}, CONFIGS["llama_3_1_8b"]).run


def test_it_runs_on_a_bare_interpreter_and_prints_an_object_a_row(tmp_path: Path) -> None:
    data = _write(tmp_path, _ROW, {**_ROW, "engine": "sglang"}, {**_ROW, "config": "missing"})
    command = [sys.executable, "-S", "-E", str(ROOT / "bench/memory_model.py"), "--json"]
    command += ["--data", str(data), "--configs", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["row"] for row in rows] == [0, 1, 2]
    assert set(rows[0]["predicted"]) == {
        "kv_bytes_per_token",
        "weights_gib",
        "kv_cache_gib",
        "kv_tokens",
        "max_model_len",
        "fits",
    }
    assert rows[0]["skipped"] is None
    assert rows[1]["predicted"] is None and "sglang" in rows[1]["skipped"]
    assert "missing.json" in rows[2]["skipped"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "bench/memory_model.py"), "--data", "nowhere.jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert "nowhere.jsonl" in done.stderr and "--data" in done.stderr


def test_outcomes_of_a_row_do_not_move_its_prediction(tmp_path: Path) -> None:
    outcomes = ("weights_gib", "kv_cache_gib", "kv_tokens", "oom")
    blind = {**_ROW, **dict.fromkeys(outcomes), "max_concurrency": 1.0, "num_gpu_blocks": 7}
    seen, unseen = score_file(_write(tmp_path, _ROW, blind), tmp_path)
    assert seen.predicted == unseen.predicted is not None


def test_the_table_names_the_worst_row_and_what_was_left_out(tmp_path: Path) -> None:
    off = {**_ROW, "weights_gib": 20.0, "oom": True}
    data = _write(tmp_path, _ROW, off, {**_ROW, "engine": "sglang"})
    text = report(score_file(data, tmp_path))
    assert "| weights per rank | 2 |" in text
    assert "| 1 llama |" in text
    assert "50.0 % right" in text
    assert "row 2 left out: the engine is sglang, not vllm" in text


def test_notes_state_settings_that_fields_leave_open() -> None:
    run = _settings(version=None, notes="version about 0.7.x (inferred), DP 8")
    assert (run.release, run.data_parallel_size) == (Release(0, 7), 8)
    run = _settings(notes="decode context parallel 8; DP 2 + expert parallel")
    assert run.decode_context_parallel_size == 8
    assert run.expert_parallel and run.data_parallel_size == 2
    assert _settings(notes="MTP n=3; +language-model-only").draft_tokens == 3
    assert _settings(version=None, notes="version about 0.2x (2026)").release == Release(0, 19)


def test_what_a_row_leaves_open_takes_the_release_default() -> None:
    open_batch = {"max_num_seqs": None, "max_num_batched_tokens": None}
    run = _settings(**open_batch)
    assert (run.max_num_seqs, run.max_num_batched_tokens) == (1024, 8192)
    run = _settings(**open_batch, gpu="NVIDIA A100 80GB", gpu_mem_gib=None)
    assert (run.max_num_seqs, run.max_num_batched_tokens) == (256, 2048)
    assert _settings(gpu_memory_utilization=None).gpu_memory_utilization == 0.90
    newer = _settings(gpu_memory_utilization=None, version="0.24.0")
    assert newer.gpu_memory_utilization == 0.92


def test_an_open_split_takes_as_many_gpus_as_hold_the_weights() -> None:
    config = {**CONFIGS["llama_3_1_8b"], "num_hidden_layers": 320}
    row = {**_ROW, "tp": None, "pp": None, "gpu": "NVIDIA-L4", "gpu_mem_gib": 22.0}
    run = read_settings(row, config).run
    assert (run.tensor_parallel_size, run.pipeline_parallel_size) == (8, 1)
    run = read_settings({**row, "tp": 4}, config).run
    assert (run.tensor_parallel_size, run.pipeline_parallel_size) == (4, 2)


@pytest.mark.parametrize(
    ("name", "stated", "gib", "capability"),
    [
        ("NVIDIA-H100-80GB-HBM3", 79.19, 79.19, 9.0),
        ("NVIDIA H100 80GB", None, 79.11, 9.0),
        ("NVIDIA A100 40GB", None, 39.38, 8.0),
        ("16 GB class (14.74 GiB: T4)", None, 14.56, 7.5),
        ("24 GB class (23.58 GiB)", None, 23.58, 8.6),
        ("RTX 5070 Ti 16 GB + RTX 5090 32 GB", None, 15.73, 8.6),
        ("Tesla V100 32GB", 31.74, 31.74, 7.0),
        ("NVIDIA H20", None, 95.0, 9.0),
        ("NVIDIA H200", None, 139.81, 9.0),
    ],
)
def test_a_gpu_is_known_by_words_of_its_name(
    name: str, stated: float | None, gib: float, capability: float
) -> None:
    gpu = read_gpu(name, stated)
    assert (gpu.memory_bytes or 0) / GIB == pytest.approx(gib, abs=0.01)
    assert gpu.compute_capability == capability


def test_a_row_without_a_gpu_has_no_memory() -> None:
    assert read_gpu(None, None).memory_bytes is None


def test_accuracy_on_the_shared_observations() -> None:
    data = SHARED / "kv_capacity_observations.jsonl"
    if not data.is_file():
        pytest.skip(f"no observations at {data}; set PAGEFLEET_SHARED_DATA")
    rows = score_file(data, SHARED / "model_configs")
    targets = {
        "kv_bytes_per_token": (0.0001, 0.001),
        "weights_gib": (0.001, 0.02),
        "kv_cache_gib": (0.005, 0.03),
    }
    errors = figure_errors(rows)
    for kind, (middle, most) in targets.items():
        values = [each.error for each in errors[kind]]
        assert len(values) >= 40, kind
        assert quantile(values, 0.5) <= middle, kind
        assert quantile(values, 0.9) <= most, kind
    assert table(rows) in (ROOT / "docs/memory-accuracy.md").read_text()
    fits = fit_errors(rows)
    assert sum(fit.predicted == fit.started for fit in fits) >= 0.95 * len(fits)
