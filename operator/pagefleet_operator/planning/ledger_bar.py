"""A ledger as one bar: every term has its mark, so that it reads without colours as well."""

from dataclasses import dataclass
from typing import Any

from rich.text import Text

_WIDTH = 80


@dataclass(frozen=True, slots=True)
class Mark:
    """How a term is drawn."""

    sign: str
    color: str

    def text(self, count: int = 1) -> Text:
        return Text(self.sign * count, style=self.color)


MARKS = {
    "weights": Mark("█", "blue"),
    "rope_and_buffers": Mark("r", "cyan"),
    "workspace": Mark("w", "yellow"),
    "sampler": Mark("s", "bright_yellow"),
    "communication": Mark("n", "magenta"),
    "context": Mark("c", "red"),
    "graphs": Mark("g", "bright_red"),
    "kv_pool": Mark("░", "green"),
    "reserve": Mark("·", "white"),
}


def ledger_bar(stage: dict[str, Any]) -> Text:
    """The budget of one device, 80 characters wide; parts below half a character are left out."""
    bar = Text("[")
    for term, count in zip(stage["terms"], widths(stage), strict=True):
        bar.append(MARKS[term["name"]].text(count))
    return bar.append("]")


def widths(stage: dict[str, Any]) -> list[int]:
    """Characters of each term: rounded where it ends, so that they sum to the whole bar."""
    ends, held = [0], 0
    for term in stage["terms"]:
        held += max(0, term["bytes"])
        ends.append(round(_WIDTH * held / stage["budgetBytes"]))
    return [end - start for start, end in zip(ends, ends[1:], strict=False)]
