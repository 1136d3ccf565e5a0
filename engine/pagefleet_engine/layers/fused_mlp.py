"""GatedMlp: one product for gate and up, one kernel for silu(gate) * up."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from pagefleet_engine.layers.joined import has_hooks, project
from pagefleet_kernels import KernelBackend

PARTS = ("gate_proj", "up_proj", "down_proj", "act_fn")

Mlp = Callable[[torch.Tensor], torch.Tensor]  # [num_tokens, hidden_size] both


def fuse_mlp(module: nn.Module, backend: KernelBackend) -> Mlp:
    """A gated MLP fused; any other module, such as a block of experts, called as it is."""
    if _is_gated_by_silu(module):
        return GatedMlp(module, backend)
    return lambda x: module(x[None])[0]


class GatedMlp:
    """Computes with the modules of a Transformers MLP."""

    def __init__(self, module: nn.Module, backend: KernelBackend) -> None:
        self._projections = project([module.get_submodule(name) for name in PARTS[:2]])
        self._output = module.get_submodule("down_proj")
        self._backend = backend

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self._projections(x)
        output: torch.Tensor = self._output(self._backend.silu_mul(gate, up))
        return output


def _is_gated_by_silu(module: nn.Module) -> bool:
    children = dict(module.named_children())
    if set(children) != set(PARTS) or has_hooks(module) or has_hooks(children["act_fn"]):
        return False
    x = torch.linspace(-8, 8, 33)
    return torch.equal(children["act_fn"](x), F.silu(x))
