"""FusedAttention: one product for queries, keys and values, one call to turn, store and attend."""

import torch
from torch import nn

from pagefleet_engine.layers.agreement import KeepAsItIs
from pagefleet_engine.layers.fused_norm import read_norm
from pagefleet_engine.layers.joined import has_hooks, project
from pagefleet_engine.models.attention import LayerUse, Turn, attention_of
from pagefleet_kernels.norm import HeadNorms

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
NORMS = ("q_norm", "k_norm")


class FusedAttention:
    """Computes with the modules of a Transformers attention, and asks what it asked."""

    def __init__(self, module: nn.Module, layer: int, use: LayerUse) -> None:
        check_attention_module(module)
        self._module = module
        self._layer = layer
        self._use = use
        self._output = module.get_submodule("o_proj")
        self._norms = _read_norms(module, use.shape.head_dim)
        self._projections = project([module.get_submodule(name) for name in PROJECTIONS[:3]])

    def __call__(
        self,
        x: torch.Tensor,  # [num_tokens, hidden_size]
        cos: torch.Tensor,  # [num_tokens, rotary_dim / 2]
        sin: torch.Tensor,
    ) -> torch.Tensor:
        """[num_tokens, hidden_size]"""
        shape, count = self._use.shape, x.shape[0]
        query, key, value = self._projections(x)
        attended = attention_of(self._module).turn_and_attend(
            self._layer,
            query.view(count, self._use.num_heads, shape.head_dim),
            key.view(count, shape.num_kv_heads, shape.head_dim),
            value.view(count, shape.num_kv_heads, shape.v_head_dim),
            self._use.options,
            Turn(cos=cos, sin=sin, norms=self._norms),
        )
        output: torch.Tensor = self._output(attended.flatten(1))
        return output


def check_attention_module(module: nn.Module) -> None:
    """Refuse what has other parts than those that are computed here."""
    name = type(module).__name__
    children = dict(module.named_children())
    if not set(PROJECTIONS) <= set(children) or set(children) - {*PROJECTIONS, *NORMS}:
        raise KeepAsItIs(f"{name} has the parts {', '.join(sorted(children))}")
    if own := [each for each, _ in module.named_parameters(recurse=False)]:
        raise KeepAsItIs(f"{name} has weights of its own: {', '.join(own)}")
    if has_hooks(module):
        raise KeepAsItIs(f"{name} has hooks")


def _read_norms(module: nn.Module, head_dim: int) -> HeadNorms | None:
    present = [name for name in NORMS if getattr(module, name, None) is not None]
    if not present:
        return None
    if len(present) < len(NORMS):
        raise KeepAsItIs(f"{type(module).__name__} has {present[0]} alone")
    query, key = (read_norm(module.get_submodule(name)) for name in NORMS)
    if (query.eps, query.casting, key.casting) != (key.eps, "llama", "llama"):
        raise KeepAsItIs(f"{type(module).__name__} normalizes queries and keys in another way")
    if not query.weight.shape == key.weight.shape == (head_dim,):
        raise KeepAsItIs(f"{type(module).__name__} normalizes all heads together")
    return HeadNorms(query=query.weight, key=key.weight, eps=query.eps)
