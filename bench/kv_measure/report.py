"""The tables of bench/results/kv_quality.md."""

from bench.kv_measure.outliers import MAGNITUDES, OutlierRow
from bench.kv_measure.text import BASELINE, TextRow

TARGETS = {"fp8_e4m3": 0.006, "int8": 0.003, "int8k_int4v": 0.01}  # changes of perplexity

TEXT = """\
# Quality of the KV modes

`python bench/kv_quality.py`: {model} over {num_tokens} tokens of the first chapter of *Alice's
Adventures in Wonderland* (Lewis Carroll, 1865), computed in float32, in chunks of a prompt that
read all keys and values from the cache. Each mode against a `{baseline}` cache. Bytes are those of
a token in all layers, scales included, as the memory model counts them.

{table}
`int4` is for models of 7 billion parameters and more. Measure the model that you serve
(`--model FOLDER`) before you choose it.
"""

OUTLIERS = """
## Channels that stand out

Normally distributed keys and values, {context} tokens, heads of 128, of which 6 key channels carry
an offset of m standard deviations. Error of attention's output relative to its norm, and KL of the
attention weights in nats.

{table}"""


def text_part(rows: list[TextRow], *, model: str, num_tokens: int) -> str:
    return TEXT.format(
        model=model, num_tokens=num_tokens, baseline=BASELINE, table=_text_table(rows)
    )


def outlier_part(rows: list[OutlierRow], *, context: int) -> str:
    return OUTLIERS.format(context=context, table=_outlier_table(rows))


def missed_targets(rows: list[TextRow]) -> list[str]:
    return [row.mode for row in rows if row.perplexity_change >= TARGETS.get(row.mode, 1.0)]


def _text_table(rows: list[TextRow]) -> str:
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


def _outlier_table(rows: list[OutlierRow]) -> str:
    heads = " | ".join(f"m = {magnitude}" for magnitude in MAGNITUDES)
    lines = [f"| mode | {heads} |", "|---" * (len(MAGNITUDES) + 1) + "|"]
    for row in rows:
        pairs = zip(row.error, row.kl, strict=True)
        cells = " | ".join(f"{error:.4f} / {kl:.0e}" for error, kl in pairs)
        lines.append(f"| {row.mode} | {cells} |")
    return "\n".join(lines) + "\n"
