"""What each KV mode costs in quality: `python bench/kv_quality.py`.

Writes bench/results/kv_quality.json (a row per mode over a text) and kv_quality.md (the same, and
keys with channels that stand out); with `--model` it only prints. Computes in float32 on a CPU, so
that nothing but the cache differs.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
CONTEXT = 2048  # of the synthetic keys


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="model folder (default: SmolLM2 in the cache)")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))  # for `python bench/kv_quality.py`
    run(options.model)


def run(folder: Path | None) -> None:
    from bench.kv_measure.outliers import measure_outliers
    from bench.kv_measure.report import missed_targets, outlier_part, text_part
    from bench.kv_measure.text import measure_text
    from e2e.model import model_folder

    name = "SmolLM2-135M-Instruct" if folder is None else folder.name
    rows, num_tokens = measure_text(folder or model_folder())
    document = text_part(rows, model=name, num_tokens=num_tokens)
    document += outlier_part(measure_outliers(context=CONTEXT), context=CONTEXT)
    print(document)
    if folder is None:
        RESULTS.mkdir(exist_ok=True)
        data = json.dumps([asdict(row) for row in rows], indent=1) + "\n"
        (RESULTS / "kv_quality.json").write_text(data, encoding="utf-8")
        (RESULTS / "kv_quality.md").write_text(document, encoding="utf-8")
    if missed := missed_targets(rows):
        sys.exit(f"beyond their target: {', '.join(missed)}")


if __name__ == "__main__":
    main()
