"""Reading Markdown: sections, table rows, code."""

import re

from docs.generate.documents import FOLDER

ROOT = FOLDER.parent


def document(name: str) -> str:
    return (FOLDER / name).read_text()


def section(text: str, heading: str) -> str:
    """What stands under `## heading`, up to the next one."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[heading]


def rows(text: str) -> list[list[str]]:
    """The cells of all table rows that begin with `code`."""
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def codes(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)
