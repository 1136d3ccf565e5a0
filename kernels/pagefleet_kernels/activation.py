"""SiLU-mul, the gate of a Llama MLP: the reference in plain torch."""

import torch
import torch.nn.functional as F

from pagefleet_kernels.checks import check, check_tensor

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def silu_mul_reference(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up of [num_tokens, gate | up], as [num_tokens, intermediate_size].

    silu(gate) is rounded before it is multiplied, as Hugging Face's models do.
    """
    check_silu_mul(gate_up)
    gate, up = gate_up.chunk(2, dim=1)
    return F.silu(gate) * up


def check_silu_mul(gate_up: torch.Tensor) -> None:
    check_tensor("gate_up", gate_up, shape=(None, None), dtypes=FLOATS, device=gate_up.device)
    check(gate_up.shape[1] % 2 == 0, "gate_up.shape[1]", gate_up.shape[1], "gate and up, so even")
