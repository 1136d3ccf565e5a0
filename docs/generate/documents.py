"""Which document holds which generated blocks."""

from collections.abc import Callable, Mapping
from pathlib import Path

from docs.generate.blocks import fill
from docs.generate.engine_flags import flag_table
from docs.generate.fields import field_sections, rule_table
from docs.generate.plan_example import plan_example

FOLDER = Path(__file__).resolve().parents[1]
DOCUMENTS: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "inferencedeployment.md": {
        "spec": lambda: field_sections("spec"),
        "rules": rule_table,
        "status": lambda: field_sections("status"),
    },
    "engine.md": {"flags": flag_table},
    "operations.md": {
        "plan": lambda: plan_example("--gpu", "NVIDIA-L4", "--count", "4"),
        "refusal": lambda: plan_example("--gpu", "Tesla-T4", "--count", "1"),
    },
}


def render(name: str) -> str:
    """The document as it should be: its own text, its blocks made anew."""
    text = (FOLDER / name).read_text()
    return fill(text, {block: make() for block, make in DOCUMENTS[name].items()})


def write_documents() -> None:
    for name in DOCUMENTS:
        (FOLDER / name).write_text(render(name))
