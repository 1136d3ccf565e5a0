"""Freeze rotary embeddings whose frequencies would follow the longest sequence of a batch.

`longrope` and `dynamic` pick their frequencies by the largest position they are given. In a packed
batch one long request would then change the others, and a sequence would change under its own
cached keys. So the choice is made once, for the longest context that is served.
"""

import torch
from torch import nn


def _follows_batch(rope_type: str) -> bool:
    return rope_type == "longrope" or "dynamic" in rope_type


@torch.no_grad()
def freeze_rope(model: nn.Module, *, max_model_len: int) -> None:
    """Fix the frequencies of every rotary module for contexts of `max_model_len`."""
    for module in model.modules():
        rope_type = getattr(module, "rope_type", None)
        if isinstance(rope_type, str) and _follows_batch(rope_type):
            _choose(module, max_model_len, {})
            module.rope_type = "frozen"  # type: ignore[assignment]  # a str attribute
        elif isinstance(rope_type, dict):
            _freeze_layer_types(module, rope_type, max_model_len)


def _freeze_layer_types(module: nn.Module, rope_type: dict[str, str], max_model_len: int) -> None:
    for layer_type, kind in rope_type.items():
        if _follows_batch(kind):
            _choose(module, max_model_len, {"layer_type": layer_type})
            rope_type[layer_type] = "frozen"


def _choose(module: nn.Module, max_model_len: int, arguments: dict[str, str]) -> None:
    """Let the module see its last position once: it keeps what it picks for that."""
    device = next(module.buffers()).device
    last = torch.tensor([[max_model_len - 1]], device=device)
    module(torch.zeros(1, 1, 1, device=device), last, **arguments)
