"""What each KV mode costs in quality: `python -m bench.kv_quality`.

Writes bench/results/kv_quality.json (a row per mode over a text) and kv_quality.md (the same, and
keys with channels that stand out). Computes in float32 on a CPU, so that only the cache differs.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

import torch

from bench.kv_measure.outliers import MAGNITUDES, OutlierRow, measure_outliers
from bench.kv_measure.text import BASELINE, TextRow, measure_text

RESULTS = Path(__file__).with_name("results")
TARGETS = {"fp8_e4m3": 0.006, "int8": 0.003, "int8k_int4v": 0.01}

INTRODUCTION = """\
# Quality of the KV modes

`python -m bench.kv_quality`: {model} over {num_tokens} tokens of the first chapter of *Alice's
Adventures in Wonderland* (Lewis Carroll, 1865), computed in float32, in chunks of a prompt that
read all keys and values from the cache. Each mode against a `{baseline}` cache. Bytes are those of
a token in all layers, scales included, as the memory model counts them.
"""

WARNING = """
`int4` is for models of 7 billion parameters and more. Measure the model that you serve
(`--model FOLDER`) before you choose it.
"""

OUTLIERS = """
## Channels that stand out

Normally distributed keys and values, {context} tokens, heads of 128, of which 6 key channels carry
an offset of m standard deviations. Error of attention's output relative to its norm, and KL of the
attention weights in nats.

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="model folder (default: SmolLM2 in the cache)")
    options = parser.parse_args()
    folder = options.model or _default_model()
    rows, num_tokens = measure_text(folder, dtype=torch.float32, report=_progress)
    document = INTRODUCTION.format(
        model="SmolLM2-135M-Instruct" if options.model is None else folder.name,
        num_tokens=num_tokens,
        baseline=BASELINE,
    )
    document += "\n" + text_table(rows) + WARNING
    document += OUTLIERS.format(context=2048) + outlier_table(measure_outliers())
    RESULTS.mkdir(exist_ok=True)
    data = json.dumps([asdict(row) for row in rows], indent=1)
    (RESULTS / "kv_quality.json").write_text(data + "\n", encoding="utf-8")
    (RESULTS / "kv_quality.md").write_text(document, encoding="utf-8")
    print(document)
    missed = [row.mode for row in rows if row.perplexity_change >= TARGETS.get(row.mode, 1.0)]
    if missed:
        sys.exit(f"beyond their target: {', '.join(missed)}")


def text_table(rows: list[TextRow]) -> str:
    lines = [
        "| mode | perplexity | change | target | KL | same most probable token | bytes per token |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        target = f"< {TARGETS[row.mode]:.1%}" if row.mode in TARGETS else ""
        lines.append(
            f"| {row.mode} | {row.perplexity:.4f} | {row.perplexity_change:+.3%} | {target} "
            f"| {row.kl:.2e} | {row.top1_agreement:.2%} | {row.bytes_per_token} |"
        )
    return "\n".join(lines) + "\n"


def outlier_table(rows: list[OutlierRow]) -> str:
    heads = " | ".join(f"m = {magnitude}" for magnitude in MAGNITUDES)
    lines = [f"| mode | {heads} |", "|---" * (len(MAGNITUDES) + 1) + "|"]
    for row in rows:
        pairs = zip(row.error, row.kl, strict=True)
        cells = " | ".join(f"{error:.4f} / {kl:.0e}" for error, kl in pairs)
        lines.append(f"| {row.mode} | {cells} |")
    return "\n".join(lines) + "\n"


def _progress(message: str) -> None:
    print(message, file=sys.stderr)


def _default_model() -> Path:
    from e2e.model import model_folder

    return model_folder()


if __name__ == "__main__":
    main()
