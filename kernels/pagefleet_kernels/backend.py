"""KernelBackend: what computes on a device beside the products with weights.

On a CPU plain torch, on a CUDA device Triton; both take the same arguments and the same pool.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from pagefleet_kernels.activation import silu_mul_reference
from pagefleet_kernels.errors import ArgumentError
from pagefleet_kernels.gpu.checks import HEAD_DIMS
from pagefleet_kernels.kv_layout import KVLayout
from pagefleet_kernels.kv_pool import LayerCache
from pagefleet_kernels.norm import NormedSum, add_rms_norm_reference, rms_norm_reference
from pagefleet_kernels.paged_attention import PagedAttention
from pagefleet_kernels.rope import rope_store_kv_reference
from pagefleet_kernels.store_kv import KVWriter

logger = logging.getLogger(__name__)

BACKENDS = ("auto", "torch", "triton")

StoreKV = Callable[[torch.Tensor, torch.Tensor, LayerCache, torch.Tensor], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelBackend:
    """Functions of one kind, each as the one of its name in this package."""

    name: str
    store_kv: StoreKV
    rope_store_kv: Callable[..., torch.Tensor]
    paged_attention: Callable[..., torch.Tensor]
    rms_norm: Callable[..., torch.Tensor]
    add_rms_norm: Callable[..., NormedSum]
    silu_mul: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    # Whether whole blocks are gathered into buffers, by lengths that the host knows: then rows that
    # were never written must hold numbers (KVPool.clear), and no graph can be captured.
    gathers: bool
    scratch_bytes: int = 0  # that it holds for partial results, the same for every layer


def open_backend(
    name: str, layout: KVLayout, device: torch.device, *, scratch_bytes: int | None = None
) -> KernelBackend:
    """The backend of this name; `auto` is Triton on a CUDA device if it can read the cache.

    Triton reserves `scratch_bytes` (`gpu.scratch`) now and for good, else it allocates at each
    call.
    """
    if _choose(name, layout, device) == "torch":
        return torch_backend()
    return triton_backend(device, scratch_bytes=scratch_bytes)


def torch_backend() -> KernelBackend:
    return KernelBackend(
        name="torch",
        store_kv=KVWriter(),
        rope_store_kv=rope_store_kv_reference,
        paged_attention=PagedAttention(),
        rms_norm=rms_norm_reference,
        add_rms_norm=add_rms_norm_reference,
        silu_mul=silu_mul_reference,
        gathers=True,
    )


def triton_backend(device: torch.device, *, scratch_bytes: int | None = None) -> KernelBackend:
    # Imported here: triton exists on Linux alone, and a CPU does without it.
    from pagefleet_kernels.gpu.activation import silu_mul
    from pagefleet_kernels.gpu.attention import paged_attention
    from pagefleet_kernels.gpu.norm import add_rms_norm, rms_norm
    from pagefleet_kernels.gpu.scratch import Scratch
    from pagefleet_kernels.gpu.store import rope_store_kv, store_kv

    scratch = None if scratch_bytes is None else Scratch(scratch_bytes, device)
    return KernelBackend(
        name="triton",
        store_kv=store_kv,
        rope_store_kv=rope_store_kv,
        paged_attention=partial(paged_attention, scratch=scratch),
        rms_norm=rms_norm,
        add_rms_norm=add_rms_norm,
        silu_mul=silu_mul,
        gathers=False,
        scratch_bytes=scratch_bytes or 0,
    )


def _choose(name: str, layout: KVLayout, device: torch.device) -> str:
    if name not in BACKENDS:
        raise ArgumentError("attention_backend", name, f"must be one of {', '.join(BACKENDS)}")
    if name == "torch" or (name == "auto" and device.type != "cuda"):
        return "torch"
    if device.type != "cuda":
        raise ArgumentError("attention_backend", name, "needs a CUDA device; torch works here")
    widths = {width for each in layout.layers for width in (each.head_dim, each.v_head_dim)}
    if unsupported := sorted(widths - set(HEAD_DIMS)):
        hint = f"the Triton kernels have no head dimension {unsupported}; torch works"
        if name == "triton":
            raise ArgumentError("attention_backend", name, hint)
        logger.warning("attention computes in plain torch: %s", hint)
        return "torch"
    return "triton"
