"""Score the memory model's `vllm` profile on observed runs: `python bench/memory_model.py`.

Needs the standard library only. Each row is predicted from its settings and its model's
config.json; the measured figures are only compared with.
"""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "engine")]

from bench.memory_scoring.observations import score_file  # noqa: E402
from bench.memory_scoring.report import report  # noqa: E402

_SHARED = ROOT.parent / "shared" / "data"


def main() -> None:
    """Print one JSON object a row, or the table of errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=_SHARED / "kv_capacity_observations.jsonl", help="rows"
    )
    parser.add_argument("--configs", type=Path, default=_SHARED / "model_configs", help="a folder")
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    arguments = parser.parse_args()
    if not arguments.data.is_file():
        sys.exit(f"{arguments.data} is not a file; name one with --data")
    rows = score_file(arguments.data, arguments.configs)
    if not arguments.json:
        print(report(rows))
        return
    for row in rows:
        answer = {"row": row.index, "predicted": row.predicted, "skipped": row.skipped}
        print(json.dumps(answer))


if __name__ == "__main__":
    main()
