"""FusedLayer: the forward of a Transformers decoder layer of the Llama kind, in few launches.

    hidden -> RMSNorm -> queries, keys, values -> turn, store, attend -> output projection
           -> add, RMSNorm -> gate, up -> silu(gate) * up -> down projection -> (add)

The modules and their weights stay where they are; only the layer's forward is another one.
"""

import torch
from torch import nn

from pagefleet_engine.layers.agreement import KeepAsItIs
from pagefleet_engine.layers.fused_attention import FusedAttention
from pagefleet_engine.layers.fused_mlp import fuse_mlp
from pagefleet_engine.layers.fused_norm import FusedNorm, Hidden, Unadded, read_norm
from pagefleet_engine.models.attention import LayerUse
from pagefleet_kernels import KernelBackend

PARTS = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")


class FusedLayer:
    """Takes what the layer's own forward takes."""

    def __init__(self, layer: nn.Module, index: int, use: LayerUse, backend: KernelBackend) -> None:
        check_layer_module(layer)
        parts = {name: layer.get_submodule(name) for name in PARTS}
        self._input_norm = FusedNorm(read_norm(parts["input_layernorm"]), backend)
        self._middle_norm = FusedNorm(read_norm(parts["post_attention_layernorm"]), backend)
        self._attention = FusedAttention(parts["self_attn"], index, use)
        self._mlp = fuse_mlp(parts["mlp"], backend)
        self.defers = False  # whether the last sum is left to the norm that follows

    def __call__(
        self,
        hidden_states: Hidden,
        *,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],  # [1, num_tokens, rotary_dim] both
        **_: object,
    ) -> Hidden:
        cos, sin = (_first_half(each) for each in position_embeddings)
        entered = self._input_norm(hidden_states)
        attended = self._attention(entered.normed, cos, sin)
        middle = self._middle_norm(Unadded(entered.summed, attended))
        added = self._mlp(middle.normed)
        if self.defers:
            return Unadded(middle.summed, added)
        return (middle.summed + added)[None]


def check_layer_module(layer: nn.Module) -> None:
    """Refuse what has other parts than those that are computed here."""
    children = [name for name, _ in layer.named_children()]
    if set(children) != set(PARTS):
        raise KeepAsItIs(f"{type(layer).__name__} has the parts {', '.join(sorted(children))}")


def _first_half(table: torch.Tensor) -> torch.Tensor:
    """Transformers has every angle twice in a row: [num_tokens, rotary_dim / 2]."""
    return table[0, :, : table.shape[-1] // 2]
