"""Which document holds which generated blocks."""

from collections.abc import Callable, Mapping
from pathlib import Path

from docs.generate.blocks import fill
from docs.generate.command_output import command_output
from docs.generate.engine_flags import flag_table
from docs.generate.fields import field_sections, rule_table
from docs.generate.ledger_picture import ledger_picture
from docs.generate.memory_tables import constant_table, product_table

_LLAMA_8B = "examples/llama-8b-gpu.yaml"
_LLAMA_70B = "examples/llama-70b.yaml"

FOLDER = Path(__file__).resolve().parents[1]
DOCUMENTS: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "inferencedeployment.md": {
        "spec": lambda: field_sections("spec"),
        "rules": rule_table,
        "status": lambda: field_sections("status"),
    },
    "engine.md": {"flags": flag_table},
    "operations.md": {
        "plan": lambda: command_output("plan", _LLAMA_8B, "--gpu", "L4", "--count", "4"),
        "refusal": lambda: command_output("plan", _LLAMA_8B, "--gpu", "T4", "--count", "1"),
    },
    "memory-model.md": {
        "plan": lambda: command_output(
            *("plan", _LLAMA_70B, "--gpu", "H100-80GB", "--count", "8", "--nodes", "2")
        ),
        "what-if": lambda: command_output(
            *("plan", "--model", "Llama-3.1-8B-Instruct", "--gpu", "L4", "--count", "4"),
            *("--max-model-len", "16384", "--concurrency", "32"),
        ),
        "capacity": lambda: command_output(
            *("capacity", "--model", "Llama-3.3-70B-Instruct", "--all-gpus"),
            *("--max-model-len", "32768", "--concurrency", "16"),
        ),
        "constants": constant_table,
        "products": product_table,
    },
}
PICTURES: Mapping[str, Callable[[], str]] = {"images/ledger.svg": ledger_picture}


def render(name: str) -> str:
    """The document as it should be: its own text, its blocks made anew."""
    text = (FOLDER / name).read_text()
    return fill(text, {block: make() for block, make in DOCUMENTS[name].items()})


def write_documents() -> None:
    for name in DOCUMENTS:
        (FOLDER / name).write_text(render(name))
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw())
