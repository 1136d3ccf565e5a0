"""What a `pagefleet` command prints: models come from the catalogue, so no network is asked."""

from pathlib import Path

from click.testing import CliRunner

from pagefleet_operator.cli import main

ROOT = Path(__file__).resolve().parents[2]


def command_output(*words: str) -> str:
    """The command and its output as a block of text; paths are those of the repository."""
    arguments = [str(ROOT / word) if word.startswith("examples/") else word for word in words]
    result = CliRunner().invoke(main, arguments)
    lines = [line.rstrip() for line in result.output.splitlines()]
    return "\n".join(["```", f"$ pagefleet {' '.join(words)}", *lines, "```"])
