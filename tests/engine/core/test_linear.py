"""Packed and fused linear layers against plain ones."""

import pytest
import torch
from torch import nn

from pagefleet_engine.layers.fused import FusedPart, fuse_linears
from pagefleet_engine.layers.linear import PackedLinear, pack_linears, packing_works

pytestmark = pytest.mark.skipif(
    not packing_works(torch.float32), reason="this torch build has no oneDNN linear operators"
)


class Attention(nn.Module):
    def __init__(self, *, bias: bool) -> None:
        super().__init__()
        self.q_proj = nn.Linear(16, 24, bias=bias)
        self.k_proj = nn.Linear(16, 8, bias=bias)
        self.v_proj = nn.Linear(16, 8, bias=False)
        self.o_proj = nn.Linear(24, 16, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.o_proj(self.q_proj(x)), self.k_proj(x), self.v_proj(x)], dim=-1)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 5, 64])
@torch.no_grad()
def test_replaced_layers_give_what_the_plain_ones_gave(bias: bool, rows: int) -> None:
    torch.manual_seed(0)
    model = Attention(bias=bias)
    x = torch.randn(1, rows, 16)
    expected = model(x)
    assert (fuse_linears(model), pack_linears(model)) == (3, 1)
    assert isinstance(model.q_proj, FusedPart)
    assert isinstance(model.o_proj, PackedLinear)
    torch.testing.assert_close(model(x), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(model(x + 1)[:, :1], model(x[:, :1] + 1), atol=0, rtol=0)


@torch.no_grad()
def test_parts_asked_alone_or_with_other_inputs_are_still_right() -> None:
    torch.manual_seed(0)
    model = Attention(bias=True)
    x, y = torch.randn(1, 3, 16), torch.randn(1, 3, 16)
    expected = model.k_proj(x), model.v_proj(y), model.q_proj(x)
    fuse_linears(model)
    actual = model.k_proj(x), model.v_proj(y), model.q_proj(x)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
