"""docs/kv-cache.md quotes the committed figures of `python bench/kv_quality.py`."""

import json

from bench.kv_quality import RESULTS
from tests.docs.markdown import codes, document, rows, section


def test_quality_table_is_what_was_measured() -> None:
    measured = {row["mode"]: row for row in json.loads((RESULTS / "kv_quality.json").read_text())}
    table = rows(section(document("kv-cache.md"), "Quality"))
    for name, perplexity, kl, same, num_bytes in table:
        row = measured[codes(name)[0]]
        if codes(name)[0] == "bfloat16":
            assert perplexity == f"{row['perplexity']:.3f}"
        else:
            assert perplexity == f"{100 * row['perplexity_change']:+.2f} %"
            assert kl == f"{row['kl']:.4f}"
            assert same == f"{100 * row['top1_agreement']:.1f} %"
        assert int(num_bytes) == row["bytes_per_token"]
    assert len(table) == 5
