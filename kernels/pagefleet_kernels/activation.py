"""SiLU-mul, the gate of a Llama MLP: the reference in plain torch."""

import torch
import torch.nn.functional as F

from pagefleet_kernels.checks import check_tensor

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def silu_mul_reference(
    gate: torch.Tensor,  # [num_tokens, intermediate_size]
    up: torch.Tensor,
) -> torch.Tensor:
    """silu(gate) * up: [num_tokens, intermediate_size].

    silu(gate) is rounded before it is multiplied, as Hugging Face's models do.
    """
    check_silu_mul(gate, up)
    return F.silu(gate) * up


def check_silu_mul(gate: torch.Tensor, up: torch.Tensor) -> None:
    check_tensor("gate", gate, shape=(None, None), dtypes=FLOATS, device=gate.device)
    shape = tuple(gate.shape)
    check_tensor("up", up, shape=shape, dtypes=(gate.dtype,), device=gate.device)
