"""Generated blocks of a Markdown document: between two comments, the rest is written by hand."""

import re
from collections.abc import Mapping, Sequence

_BLOCK = re.compile(
    r"<!-- generated: (?P<name>[a-z-]+) -->\n.*?<!-- end of (?P=name) -->", re.DOTALL
)


class BlockError(ValueError):
    """A document and the blocks that are made for it do not agree."""


def fill(text: str, blocks: Mapping[str, str]) -> str:
    """The document with every block written anew; each block stands in it exactly once."""
    found = [match["name"] for match in _BLOCK.finditer(text)]
    if sorted(found) != sorted(blocks):
        raise BlockError(f"the document has the blocks {found}, made are {list(blocks)}")

    def write(match: re.Match[str]) -> str:
        name = match["name"]
        return f"<!-- generated: {name} -->\n{blocks[name].strip()}\n<!-- end of {name} -->"

    return _BLOCK.sub(write, text)


def table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table; a bar inside a cell is escaped."""
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines
    )
