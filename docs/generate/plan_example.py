"""What `pagefleet plan` prints for an example, on headers of the model's true sizes."""

import tempfile
from pathlib import Path

from click.testing import CliRunner

from e2e.support.virtual_model import LLAMA_8B, VirtualModel
from pagefleet_operator.cli import main

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = "examples/llama-8b-gpu.yaml"


def plan_example(*options: str) -> str:
    """The command and its output as a block of text."""
    command = ["plan", "-f", EXAMPLE, *options]
    with tempfile.TemporaryDirectory() as folder:
        _write_model(LLAMA_8B, Path(folder))
        arguments = [str(ROOT / EXAMPLE) if part == EXAMPLE else part for part in command]
        result = CliRunner().invoke(main, [*arguments, "--model", folder])
    lines = [line.rstrip() for line in result.output.splitlines()]
    return "\n".join(["```", f"$ pagefleet {' '.join(command)}", *lines, "```"])


def _write_model(model: VirtualModel, folder: Path) -> None:
    """Headers, then a hole as long as the tensors: nothing reads them."""
    for name, content in model.files.items():
        (folder / name).write_bytes(content)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(model.header)
        file.truncate(model.weights_size)
