"""Figures that vLLM servers logged, carried here with their sources.

Sources: PR205 = start-up logs of llm-d-incubation/llm-d-planner pull 205 (Apache-2.0), H100-80GB at
utilization 0.95 with 1024 sequences and 8192 tokens a step; the others are issues of the
repository they name. Configs are the models' published values (published_configs.json).
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pagefleet_memory.shape_reader import read_shape
from pagefleet_memory.vllm import Prediction, Release, Run, predict

GIB = 1 << 30
CONFIGS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "published_configs.json").read_text()
)


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """A run's model, what its settings have beside the common ones, and what it logged."""

    model: str
    source: str
    settings: dict[str, Any] = field(default_factory=dict)
    version: str = "0.19.0"
    weights_gib: float | None = None
    kv_cache_gib: float | None = None
    kv_tokens: int | None = None

    def predict(self) -> Prediction:
        """The figures computed from the config and the settings."""
        return predict(read_shape(CONFIGS[self.model]), self.run())

    def run(self) -> Run:
        """The settings: those of the logs of PR205 where the row does not say otherwise."""
        common: dict[str, Any] = {
            "max_model_len": 8192,
            "memory_bytes": int(79.19 * GIB),
            "gpu_memory_utilization": 0.95,
            "max_num_seqs": 1024,
            "max_num_batched_tokens": 8192,
        }
        return Run(release=Release.parse(self.version), **{**common, **self.settings})


def _tp(ranks: int) -> dict[str, Any]:
    return {"tensor_parallel_size": ranks}


def _pp(stages: int) -> dict[str, Any]:
    return {"pipeline_parallel_size": stages}


_T4 = {
    "memory_bytes": int(14.74 * GIB),
    "compute_capability": 7.5,
    "dtype": "float16",
    "max_num_batched_tokens": 2048,
}
_H200 = {"memory_bytes": int(139.81 * GIB), "gpu_memory_utilization": 0.92}

RUNS = (
    ObservedRun("llama_3_1_8b", "PR205", {}, "0.19.0", 14.99, 58.11, 476_016),
    ObservedRun("llama_3_1_8b", "PR205", {"dtype": "float32"}, "0.19.0", 29.98, 42.80, 175_296),
    ObservedRun(
        "llama_3_1_8b", "PR205", {"kv_cache_dtype": "fp8_e4m3"}, "0.19.0", 14.99, 58.11, 952_032
    ),
    ObservedRun("llama_3_1_8b", "PR205", _tp(2), "0.19.0", 7.51, 63.76, 1_044_688),
    ObservedRun("llama_3_1_8b", "PR205", _pp(2), "0.19.0", 7.51, 65.63, 1_075_312),
    ObservedRun("llama_3_1_8b", "PR205", _pp(4), "0.19.0", 4.26, 68.89, 2_257_264),
    ObservedRun("qwen2_5_72b", "PR205", _tp(2), "0.19.0", 67.80, 3.04, 19_920),
    ObservedRun("qwen3_14b", "PR205", {}, "0.16.0", 27.52, 41.94, 274_848),
    ObservedRun("qwen3_14b", "PR205", {}, "0.17.0", 27.52, 45.34, 297_152),
    ObservedRun("qwen3_14b", "PR205", {}, "0.18.0", 27.52, 45.23, 296_400),
    ObservedRun("qwen3_30b_a3b", "PR205", {}, "0.19.0", 56.88, 15.41, 168_288),
    ObservedRun("deepseek_v2_lite", "PR205", {}, "0.19.0", 29.43, 43.61, 1_505_552),
    ObservedRun("gemma_2_27b", "PR205", {}, "0.19.0", 50.72, 20.59, 58_672),
    ObservedRun(
        "gpt_oss_20b",
        "PR205",
        {**_tp(2), "gpu_memory_utilization": 0.90},
        "0.19.0",
        7.01,
        59.32,
        2_591_776,
    ),
    ObservedRun("llama_4_scout", "PR205", _tp(4), "0.19.0", 53.12, 16.75, 365_968),
    ObservedRun("mistral_small_3_1", "PR205", {}, "0.19.0", 44.76, 28.19, 184_752),
    ObservedRun("llama_3_3_70b_fp8", "PR205", _tp(2), "0.19.0", 33.88),
    ObservedRun("llama_3_3_70b_fp8", "PR205", _tp(4), "0.19.0", 16.96),
    ObservedRun("gemma_3_27b", "PR205", {}, "0.19.0", 51.45, None, 36_560),
    ObservedRun(
        "llama_3_2_3b",
        "T4 start-up log, vLLM 0.8.2",
        {**_T4, "gpu_memory_utilization": 0.89, "max_model_len": 2048, "max_num_seqs": 192},
        "0.8.2",
        6.016,
        6.22,
        3637 * 16,
    ),
    ObservedRun(
        "llama_3_1_8b_nf4",
        "T4 start-up log, vLLM 0.7.2",
        {**_T4, "gpu_memory_utilization": 0.60, "max_model_len": 512, "max_num_seqs": 160},
        "0.7.2",
        5.3541,
        2.64,
        1353 * 16,
    ),
    ObservedRun(
        "gemma_4_31b",
        "redhat-performance/configiq#112",
        {**_H200, "max_model_len": 262_144},
        "0.24.0",
        None,
        64.68,
        626_949,
    ),
)
