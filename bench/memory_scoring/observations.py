"""Reading the observations and the configs that their rows name."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.memory_scoring.settings import read_settings
from pagefleet_memory.units import GIB
from pagefleet_memory.vllm.prediction import predict

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """One row of the file with what was predicted for it, or why nothing was."""

    index: int
    row: Row
    predicted: dict[str, Any] | None
    skipped: str | None


def score_file(data: Path, configs: Path) -> list[ScoredRow]:
    """Every row of the file, in its order."""
    lines = [line for line in data.read_text().splitlines() if line.strip()]
    return [score_row(index, json.loads(line), configs) for index, line in enumerate(lines)]


def score_row(index: int, row: Row, configs: Path) -> ScoredRow:
    """A row's prediction from its settings and its model's config alone."""
    if row.get("engine") not in (None, "vllm"):
        return ScoredRow(index, row, None, f"the engine is {row['engine']}, not vllm")
    if not row.get("config"):
        return ScoredRow(index, row, None, "names no config")
    path = configs / f"{row['config']}.json"
    try:
        config = json.loads(path.read_text())
        scored = read_settings(row, config)
        found = predict(scored.shape, scored.run)
    except (OSError, ValueError, TypeError) as error:
        return ScoredRow(index, row, None, str(error))
    predicted = {
        "kv_bytes_per_token": found.kv_bytes_per_token,
        "weights_gib": found.weights_bytes / GIB,
        "kv_cache_gib": None if found.kv_cache_bytes is None else found.kv_cache_bytes / GIB,
        "kv_tokens": found.kv_tokens,
        "max_model_len": found.max_model_len,
        "fits": found.fits,
    }
    return ScoredRow(index, row, predicted, None)
