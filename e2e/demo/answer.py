"""Ask the served model a question and show the answer as it arrives."""

from rich.console import Console

from e2e.support.chat import get_text, stream_chat

QUESTION = "What is the capital of France, and what is it known for?"
SHOWN = ("pagefleet_kv_cache_", "pagefleet_prefix_cache_", "pagefleet_requests_", "pagefleet_preem")


def show_answer(console: Console, url: str, model: str) -> None:
    console.print(f"\n[bold]Question:[/bold] {QUESTION}\n[bold]Answer:[/bold] ", end="")
    for piece in stream_chat(url, model, QUESTION, max_tokens=64):
        console.out(piece, end="", highlight=False)
    console.print()


def show_metrics(console: Console, url: str) -> None:
    """The engine's own KV and request figures, without their help lines."""
    console.print(f"\n[bold]What the engine exports[/bold] ({url}/metrics):")
    for line in get_text(f"{url}/metrics").splitlines():
        if line.startswith(SHOWN) and "_bucket" not in line and "_created" not in line:
            console.out(f"  {line}", highlight=False)
