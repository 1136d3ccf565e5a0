"""Which attention backend a device and a cache get."""

import pytest
import torch

from pagefleet_engine.config import ATTENTION_BACKENDS
from pagefleet_kernels import ArgumentError, KVLayout, LayerKVShape, open_backend
from pagefleet_kernels.backend import BACKENDS

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def layout(width: int = 64) -> KVLayout:
    shape = LayerKVShape(num_kv_heads=2, head_dim=width, v_head_dim=64)
    return KVLayout(mode="bfloat16", block_size=16, layers=(shape,))


@pytest.mark.parametrize(
    ("name", "device", "width", "chosen"),
    [
        ("auto", CPU, 64, "torch"),
        ("auto", CUDA, 64, "triton"),
        ("auto", CUDA, 72, "torch"),
        ("torch", CUDA, 64, "torch"),
        ("triton", CUDA, 128, "triton"),
    ],
)
def test_choice(name: str, device: torch.device, width: int, chosen: str) -> None:
    backend = open_backend(name, layout(width), device)
    assert backend.name == chosen
    assert backend.gathers == (chosen == "torch")


@pytest.mark.parametrize(
    ("name", "device", "width", "hint"),
    [
        ("triton", CPU, 64, "torch works here"),
        ("triton", CUDA, 72, r"no head dimension \[72\]; torch works"),
        ("flash", CPU, 64, "one of auto, torch, triton"),
    ],
)
def test_what_cannot_work_is_refused(
    name: str, device: torch.device, width: int, hint: str
) -> None:
    with pytest.raises(ArgumentError, match=hint) as caught:
        open_backend(name, layout(width), device)
    assert (caught.value.field, caught.value.value) == ("attention_backend", name)


def test_the_engine_offers_the_same_names() -> None:
    assert ATTENTION_BACKENDS == BACKENDS
