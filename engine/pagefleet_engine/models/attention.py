"""The attention function that Transformers models call: it writes and reads the paged cache.

A model built with `attn_implementation="pagefleet"` calls `attend` in every layer with the packed
batch [1, heads, tokens, head_dim]; a fused layer asks for more in one call (`turn_and_attend`). The
layer finds the cache through the `PagedLayers` object that `attach` hangs on its module, so there
is no global state and models do not share anything.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import nn
from transformers import AttentionInterface

from pagefleet_kernels import AttentionMetadata, KernelBackend, KVPool, LayerCache, LayerKVShape
from pagefleet_kernels.norm import HeadNorms

ATTENTION_NAME = "pagefleet"
_ATTRIBUTE = "pagefleet_attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionOptions:
    """What a layer asks for beside plain causal attention."""

    scale: float
    window: int | None
    softcap: float | None
    sinks: torch.Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerUse:
    """What one layer stores and asks for."""

    shape: LayerKVShape
    num_heads: int
    options: AttentionOptions
    rotary_dim: int = 0  # of keys that the cache turns; 0: they come ready
    has_head_norms: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Turn:
    """What is done to queries and keys before they meet, in this order: norms, then RoPE."""

    cos: torch.Tensor  # [num_tokens, rotary_dim / 2]
    sin: torch.Tensor
    norms: HeadNorms | None


class LayerAttention(Protocol):
    """Answers the attention of one layer for the packed batch."""

    def attend(
        self,
        layer: int,
        query: torch.Tensor,  # [num_tokens, num_heads, head_dim]
        key: torch.Tensor,  # [num_tokens, num_kv_heads, head_dim]
        value: torch.Tensor,  # [num_tokens, num_kv_heads, v_head_dim]
        options: AttentionOptions,
    ) -> torch.Tensor: ...

    def turn_and_attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        options: AttentionOptions,
        turn: Turn,
    ) -> torch.Tensor:
        """As `attend` with turned queries and keys."""
        ...


class PagedLayers:
    """Attention over the paged cache; `begin` is called before each forward."""

    def __init__(self, pool: KVPool, backend: KernelBackend) -> None:
        self.pool = pool
        self._backend = backend
        self._metadata: AttentionMetadata | None = None

    def begin(self, metadata: AttentionMetadata) -> None:
        """Take in a step; blocks whose first row it writes lose what their last owner left."""
        self._metadata = metadata
        if not self._backend.gathers:
            return
        slots, block_size = metadata.slot_mapping, self.pool.layout.block_size
        first = slots % block_size == 0
        if bool(first.any()):
            self.pool.clear(slots[first] // block_size)

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        options: AttentionOptions,
    ) -> torch.Tensor:
        cache, slots = self.pool.layer(layer), self._step.slot_mapping
        self._backend.store_kv(key, value, cache, slots)
        return self._read(query, cache, options)

    def turn_and_attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        options: AttentionOptions,
        turn: Turn,
    ) -> torch.Tensor:
        cache, slots = self.pool.layer(layer), self._step.slot_mapping
        turned = self._backend.rope_store_kv(
            query, key, value, cache, slots, cos=turn.cos, sin=turn.sin, norms=turn.norms
        )
        return self._read(turned, cache, options)

    @property
    def _step(self) -> AttentionMetadata:
        assert self._metadata is not None, "a forward needs its attention metadata"
        return self._metadata

    def _read(
        self, query: torch.Tensor, cache: LayerCache, options: AttentionOptions
    ) -> torch.Tensor:
        return self._backend.paged_attention(
            query,
            cache,
            self._step,
            scale=options.scale,
            window=options.window,
            softcap=options.softcap,
            sinks=options.sinks,
        )


class UseRecorder:
    """Stands in for the cache in a first forward and notes what each layer would do with it."""

    def __init__(self) -> None:
        self.layers: dict[int, LayerUse] = {}

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
        self.layers[layer] = LayerUse(shape=shape, num_heads=query.shape[1], options=options)
        return query.new_zeros(query.shape[0], query.shape[1], value.shape[2])

    def turn_and_attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        options: AttentionOptions,
        turn: Turn,
    ) -> torch.Tensor:
        turned = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        attended = self.attend(layer, turned, key, value, options)
        self.layers[layer] = replace(
            self.layers[layer],
            rotary_dim=2 * turn.cos.shape[1],
            has_head_norms=turn.norms is not None,
        )
        return attended


def attach(model: nn.Module, attention: LayerAttention) -> None:
    """Make every layer of the model use this attention."""
    for module in model.modules():
        if hasattr(module, "layer_idx"):
            setattr(module, _ATTRIBUTE, attention)


def attention_of(module: nn.Module) -> LayerAttention:
    """What `attach` hung on a layer's attention module."""
    attention: LayerAttention = getattr(module, _ATTRIBUTE)
    return attention


def attend(
    module: nn.Module,
    query: torch.Tensor,  # [1, num_heads, num_tokens, head_dim]
    key: torch.Tensor,  # [1, num_kv_heads, num_tokens, head_dim]
    value: torch.Tensor,  # [1, num_kv_heads, num_tokens, v_head_dim]
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """What Transformers calls; returns [1, num_tokens, num_heads, v_head_dim]."""
    assert attention_mask is None, "a mask was built for an attention that reads block tables"
    attended = attention_of(module).attend(
        module.layer_idx,  # type: ignore[arg-type]  # an int attribute, which nn.Module cannot type
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        AttentionOptions(
            scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
            window=sliding_window,
            softcap=softcap,
            sinks=s_aux,
        ),
    )
    return attended[None], None


AttentionInterface.register(ATTENTION_NAME, attend)
