"""Errors of predicted figures against observed ones, by kind of figure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.memory_scoring.observations import Row, ScoredRow
from pagefleet_memory.units import GIB


@dataclass(frozen=True, slots=True)
class FigureError:
    """One figure of one row; the error is relative to the observed value."""

    row: int
    predicted: float
    observed: float
    rounding: float = 0.0  # of the observed figure, relative to it

    @property
    def error(self) -> float:
        """Relative error without its sign."""
        return abs(self.predicted - self.observed) / abs(self.observed)

    @property
    def unexplained(self) -> float:
        """The error less what the rounding of the observed figure can make."""
        return max(0.0, self.error - self.rounding)


@dataclass(frozen=True, slots=True)
class FitError:
    """A run that started or did not, and what was said of it."""

    row: int
    predicted: bool
    started: bool


Figures = dict[str, list[FigureError]]

# Rows of hybrids print tokens that are no measure of bytes; other engines' blocks differ.
_NOT_PER_TOKEN = (
    "hybrid",
    "charges all",
    "decode context parallel",
    "smallest rank",
    "approximate",
)


def figure_errors(rows: Sequence[ScoredRow]) -> Figures:
    """Errors of every kind, over the rows that observed it."""
    return {name: _errors(rows, name, observed) for name, observed in _OBSERVED.items()}


def fit_errors(rows: Sequence[ScoredRow]) -> list[FitError]:
    """Whether each run started, for rows whose prediction says."""
    return [
        FitError(scored.index, bool(scored.predicted["fits"]), not scored.row["oom"])
        for scored in rows
        if scored.predicted and scored.predicted["fits"] is not None
        if scored.row.get("oom") is not None
    ]


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _errors(
    rows: Sequence[ScoredRow], name: str, observed: Callable[[Row], float | None]
) -> list[FigureError]:
    errors = []
    for scored in rows:
        actual = observed(scored.row)
        predicted = scored.predicted.get(name) if scored.predicted else None
        if actual and predicted is not None:
            rounding = _pool_rounding(scored.row) if name == "kv_bytes_per_token" else 0.0
            errors.append(FigureError(scored.index, predicted, actual, rounding))
    return errors


def _bytes_per_token(row: Row) -> float | None:
    """Bytes that the log's own figures imply; None where they do not go together."""
    notes = f"{row.get('notes') or ''} {row.get('config_note') or ''}".lower()
    if any(word in notes for word in _NOT_PER_TOKEN):
        return None
    pool, tokens = row.get("kv_cache_gib"), row.get("kv_tokens")
    if row.get("kv_needed_gib") and row.get("max_model_len"):
        return float(row["kv_needed_gib"]) * GIB / int(row["max_model_len"])
    if not tokens and row.get("num_gpu_blocks"):
        tokens = row["num_gpu_blocks"] * (row.get("block_size") or 16)
    return pool * GIB / tokens if pool and tokens and pool > 0.5 else None


def _pool_rounding(row: Row) -> float:
    """Half of the 0.01 GiB that logs print a pool to, relative to the pool."""
    return 0.005 / float(row.get("kv_needed_gib") or row["kv_cache_gib"])


def _pool(row: Row) -> float | None:
    """The pool, where the log gives what it follows from."""
    known = ("gpu_mem_gib", "gpu_memory_utilization", "max_num_seqs", "kv_cache_gib")
    return float(row["kv_cache_gib"]) if all(row.get(name) for name in known) else None


def _tokens(row: Row) -> float | None:
    if row.get("kv_tokens"):
        return float(row["kv_tokens"])
    blocks = row.get("num_gpu_blocks")
    return float(blocks * (row.get("block_size") or 16)) if blocks else None


_OBSERVED: dict[str, Callable[[Row], float | None]] = {
    "kv_bytes_per_token": _bytes_per_token,
    "weights_gib": lambda row: row.get("weights_gib"),
    "kv_cache_gib": _pool,
    "kv_tokens": _tokens,
    "max_model_len": lambda row: row.get("estimated_max_model_len"),
}
