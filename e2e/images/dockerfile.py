"""Split the Dockerfile into stages, so that each image is keyed by the stages it is made of."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STAGE = re.compile(r"^FROM \S+ AS (\S+)$", re.MULTILINE)


def stages(text: str) -> dict[str, str]:
    """Each stage's instructions by its name; comments are left out, they build nothing."""
    code = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    starts = list(STAGE.finditer(code))
    ends = [start.start() for start in starts[1:]] + [len(code)]
    return {
        start[1]: code[start.start() : end].strip() for start, end in zip(starts, ends, strict=True)
    }
