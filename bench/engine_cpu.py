"""Tokens per second of the engine on this CPU: `python -m bench.engine_cpu`.

With `--against CHECKOUT`, another checkout of the project runs the same loads in turns with this
one, and the table has the ratio of both: machines differ, a ratio within one run does not.
`-- --processor-time` counts the seconds of the processor instead of the clock's, for a machine that
does something else beside.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.engine_load import LOADS

ROOT = Path(__file__).resolve().parents[1]


class Engine:
    """A process that holds the model with the code of one checkout and runs loads on request."""

    def __init__(self, checkout: Path, model: Path, flags: list[str]) -> None:
        roots = (checkout / "engine", checkout / "kernels", ROOT)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.engine_load", "--model", str(model), *flags],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, roots))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, load: str) -> float:
        """Tokens per second of one load."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(load, file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return float(answer["tokens_per_second"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="another checkout of the project")
    parser.add_argument("--model", type=Path, help="model folder (default: SmolLM2 in the cache)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("flags", nargs="*", help="flags of the engine, behind --")
    options = parser.parse_args()
    checkouts = [ROOT] + ([options.against.resolve()] if options.against else [])
    model = options.model or _default_model()
    engines = [Engine(checkout, model, options.flags) for checkout in checkouts]
    try:
        report({load: measure(engines, load, options.rounds) for load in LOADS})
    finally:
        for engine in engines:
            engine.close()


def measure(engines: list[Engine], load: str, rounds: int) -> list[list[float]]:
    """Per round, tokens per second of each engine, after a round that does not count."""
    return [[engine.run(load) for engine in engines] for _ in range(rounds + 1)][1:]


def report(results: dict[str, list[list[float]]]) -> None:
    print(f"{'load':<34}{'tokens/s':>10}{'other':>10}{'ratio':>8}{'spread':>14}")
    for load, rows in results.items():
        line = f"{load:<34}{statistics.median(row[0] for row in rows):>10.1f}"
        if len(rows[0]) > 1:
            ratios = sorted(row[0] / row[1] for row in rows)
            line += f"{statistics.median(row[1] for row in rows):>10.1f}"
            line += f"{statistics.median(ratios):>8.3f}{ratios[0]:>8.3f}-{ratios[-1]:.3f}"
        print(line)


def _default_model() -> Path:
    from e2e.model import model_folder

    return model_folder()


if __name__ == "__main__":
    main()
