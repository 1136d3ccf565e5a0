"""Try a fused layer beside Hugging Face's own, on random hidden states.

Both attend without a cache, to the same few tokens. What they hand to attention and what they add
to the hidden states must agree, once with strong attention and once without, so that neither it nor
the MLP hides a difference of the other. Hidden states are as large as what is added to them: then
rounding the sums hides nothing either.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from pagefleet_engine.layers.agreement import KeepAsItIs, difference, tolerance
from pagefleet_engine.layers.fused_norm import Hidden
from pagefleet_engine.models.attention import AttentionOptions, LayerUse, Turn, attach
from pagefleet_kernels import LayerKVShape
from pagefleet_kernels.rope import turn_heads

logger = logging.getLogger(__name__)

GAINS = (30.0, 0.0)  # of attention
SMALLEST_SCALE = 3e-3  # below it a norm's epsilon is more than the hidden states

# Of which what is added must agree: roundings alone send a few tokens to other experts.
MOST_TOKENS = 0.5

LayerForward = Callable[..., Hidden]


@dataclass(frozen=True, slots=True, eq=False)
class LayerCall:
    """How the model calls a layer."""

    hidden: torch.Tensor  # [1, num_tokens, hidden_size]
    arguments: tuple[object, ...]  # after the hidden states
    named: dict[str, object]
    output: object


@dataclass(frozen=True, slots=True, eq=False)
class Behaviour:
    """What a layer did to random hidden states."""

    use: LayerUse
    index: int
    heads: dict[str, torch.Tensor]  # queries, keys, values: [num_tokens, heads, width]
    added: torch.Tensor  # [num_tokens, hidden_size]


@dataclass(frozen=True, slots=True, eq=False)
class _Case:
    gain: float
    hidden: torch.Tensor  # [1, num_tokens, hidden_size]
    expected: Behaviour


class PlainAttention:
    """Causal attention among the tokens of one call, times `gain`; keeps what it was asked."""

    def __init__(self, gain: float) -> None:
        self._gain = gain
        self.index = 0
        self.use: LayerUse | None = None
        self.heads: dict[str, torch.Tensor] = {}

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        options: AttentionOptions,
    ) -> torch.Tensor:
        shape = LayerKVShape(
            num_kv_heads=key.shape[1], head_dim=key.shape[2], v_head_dim=value.shape[2]
        )
        self.index = layer
        self.use = LayerUse(shape=shape, num_heads=query.shape[1], options=options)
        self.heads = {"queries": query, "keys": key, "values": value}
        q, k, v = (each.transpose(0, 1)[None].float() for each in (query, key, value))
        attended = F.scaled_dot_product_attention(
            q,
            k,
            v,
            is_causal=True,
            scale=options.scale,
            enable_gqa=True,
        )
        return (self._gain * attended[0].transpose(0, 1)).to(query.dtype)

    def turn_and_attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        options: AttentionOptions,
        turn: Turn,
    ) -> torch.Tensor:
        turned = turn_heads(query, key, turn.cos, turn.sin, norms=turn.norms)
        return self.attend(layer, turned.query, turned.key, value, options)


class LayerTrial:
    """Behaviours of the layer's own forward, to compare a fused one with."""

    def __init__(self, layer: nn.Module, call: LayerCall) -> None:
        self._layer = layer
        self._call = call
        self._own: LayerForward = layer.forward
        self._cases = [self._case(gain) for gain in GAINS]

    @property
    def index(self) -> int:
        """The layer's place in the cache."""
        return self._cases[0].expected.index

    @property
    def use(self) -> LayerUse:
        return self._cases[0].expected.use

    def _case(self, gain: float) -> _Case:
        hidden = _random_like(self._call.hidden, scale=1.0)
        size = float(self._observe(self._own, hidden, gain).added.square().mean().sqrt())
        hidden = _random_like(self._call.hidden, scale=max(size, SMALLEST_SCALE))
        return _Case(gain, hidden, self._observe(self._own, hidden, gain))

    def check(self, fused: LayerForward) -> None:
        """KeepAsItIs where a difference is too large."""
        most = tolerance(self._call.hidden.dtype)
        for case in self._cases:
            found, expected = self._observe(fused, case.hidden, case.gain), case.expected
            pairs = {name: (found.heads[name], expected.heads[name]) for name in found.heads}
            pairs["added hidden states"] = (found.added, expected.added)
            for name, pair in pairs.items():
                share = 1.0 if name in found.heads else MOST_TOKENS
                if (apart := difference(*pair, share=share)) > most:
                    logger.debug("%s: %g apart, at most %g", name, apart, most)
                    raise KeepAsItIs(f"its {name} are not what the fused layer makes")

    @torch.inference_mode()
    def _observe(self, forward: LayerForward, hidden: torch.Tensor, gain: float) -> Behaviour:
        attention, call = PlainAttention(gain), self._call
        attach(self._layer, attention)
        output = forward(hidden, *call.arguments, **call.named)
        if attention.use is None:
            raise KeepAsItIs("it asks for no attention")
        if not isinstance(output, torch.Tensor):
            raise KeepAsItIs("it returns more than hidden states")
        added = output[0].double() - hidden[0].double()
        return Behaviour(attention.use, attention.index, attention.heads, added)


def _random_like(hidden: torch.Tensor, *, scale: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return (scale * torch.randn(hidden.shape, generator=generator)).to(hidden)
