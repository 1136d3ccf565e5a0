"""Tensor parallelism: replace a stage's modules by one rank's share, as the model's plan says.

`model.tp_plan` names a style for module names in which numbers are `*`. Attention code of
Transformers takes head counts from shapes, so a layer with fewer heads needs no change.
"""

import re
from collections.abc import Mapping

import torch
from torch import nn
from transformers import PreTrainedModel

from pagefleet_engine.errors import ConfigError
from pagefleet_engine.layers.parallel import GatheredLinear, RowLinear, VocabEmbedding
from pagefleet_engine.parallel.group import RankGroup
from pagefleet_engine.parallel.pieces import (
    Piece,
    head_share,
    packed_share,
    share,
    vocab_share,
)

_WHOLE = ("replicate", "replicated_with_grad_allreduce")
_HEAD_STYLES = ("colwise_gather_output", "colwise_rep", "colwise")
_KV_PROJECTIONS = ("k_proj", "v_proj")
# What a model's own plan leaves whole on every rank, though it splits like any MLP.
_SHARED_EXPERT = "model.layers.*.mlp.shared_expert"
_BESIDE_PLANS: Mapping[str, Mapping[str, str]] = {
    "qwen2_moe": {
        f"{_SHARED_EXPERT}.gate_proj": "colwise",
        f"{_SHARED_EXPERT}.up_proj": "colwise",
        f"{_SHARED_EXPERT}.down_proj": "rowwise",
    }
}


def split_tensors(model: PreTrainedModel, group: RankGroup) -> dict[str, Piece]:
    """Split in place, on meta; returns where the changed parameters come from, by their names."""
    if group.place.tensor_size == 1:
        return {}
    return _Splitter(model, group).split()


class _Splitter:
    def __init__(self, model: PreTrainedModel, group: RankGroup) -> None:
        self._model = model
        self._group = group
        self._size = group.place.tensor_size
        self._rank = group.place.tensor_rank
        self._pieces: dict[str, Piece] = {}
        if not model.tp_plan:
            raise self._refusal("the model brings no tensor-parallel plan")
        more = _BESIDE_PLANS.get(model.config.model_type, {})
        self._plan: Mapping[str, str] = {**model.tp_plan, **more}

    def split(self) -> dict[str, Piece]:
        embedding = self._model.get_input_embeddings()
        head = self._model.get_output_embeddings()
        for name, module in list(self._model.named_modules()):
            if module is embedding:
                self._split_embedding(name, module)
            elif module is head:
                self._split_head(name, module)
            elif (style := self._style(name)) is not None:
                self._split_module(name, module, style)
        for name, parameter in list(self._model.named_parameters()):
            if (style := self._style(name)) is not None:
                self._split_experts(name, parameter, style)
        if not any(name.endswith(".k_proj.weight") for name in self._pieces):
            raise self._refusal("its plan leaves the attention whole on every rank")
        return self._pieces

    def _style(self, name: str) -> str | None:
        return self._plan.get(re.sub(r"\.\d+(?=\.|$)", ".*", name))

    def _refusal(self, why: str) -> ConfigError:
        name = type(self._model).__name__
        hint = f"this version cannot split {name}: {why}; 1 works"
        return ConfigError("tensor_parallel_size", self._size, hint)

    def _split_module(self, name: str, module: nn.Module, style: str) -> None:
        if style == "colwise" and type(module) is nn.Linear:
            self._split_columns(name, module)
        elif style == "rowwise" and type(module) is nn.Linear:
            self._split_rows(name, module)
        elif style == "moe_tp_experts":
            module.register_forward_hook(lambda _module, _args, out: self._group.all_reduce(out))
        elif style not in _WHOLE and not isinstance(module, nn.Identity):
            raise self._refusal(f"{name} is {style} in its plan")

    def _split_columns(self, name: str, linear: nn.Linear) -> None:
        size = linear.out_features
        if name.rpartition(".")[2] in _KV_PROJECTIONS:
            part = head_share(size, self._num_kv_heads(), self._rank, self._size)
        else:
            part = share(size, self._rank, self._size)
        local = _meta_linear(linear.in_features, part[1] - part[0], like=linear)
        self._model.set_submodule(name, local)
        for attribute, _ in local.named_parameters():
            self._pieces[f"{name}.{attribute}"] = Piece(f"{name}.{attribute}", 0, (part,))

    def _num_kv_heads(self) -> int:
        try:
            return int(self._model.config.num_key_value_heads)
        except (AttributeError, RuntimeError) as error:
            raise self._refusal("its layers differ in their key-value heads") from error

    def _split_rows(self, name: str, linear: nn.Linear) -> None:
        part = share(linear.in_features, self._rank, self._size)
        local = _meta_linear(part[1] - part[0], linear.out_features, like=linear, bias=False)
        self._model.set_submodule(name, RowLinear(local, linear.bias, self._group))
        self._pieces[f"{name}.linear.weight"] = Piece(f"{name}.weight", 1, (part,))

    def _split_head(self, name: str, head: nn.Module) -> None:
        if isinstance(head, nn.Identity):
            return
        style = self._style(name)
        if type(head) is not nn.Linear or style not in _HEAD_STYLES:
            raise self._refusal(f"its head {name} is {style} in its plan")
        part, rows = vocab_share(head.out_features, self._rank, self._size)
        local = _meta_linear(head.in_features, rows, like=head)
        gathered = GatheredLinear(local, self._group, out_features=head.out_features)
        self._model.set_submodule(name, gathered)
        for attribute, _ in local.named_parameters():
            piece = Piece(f"{name}.{attribute}", 0, (part,), rows)
            self._pieces[f"{name}.linear.{attribute}"] = piece

    def _split_embedding(self, name: str, embedding: nn.Module) -> None:
        if type(embedding) is not nn.Embedding:  # one with a scale of its own stays whole
            return
        part, rows = vocab_share(embedding.num_embeddings, self._rank, self._size)
        weight = _meta_parameter(rows, embedding.embedding_dim, dtype=embedding.weight.dtype)
        local = VocabEmbedding(weight, self._group, first=part[0])
        self._model.set_submodule(name, local)
        self._pieces[f"{name}.weight"] = Piece(f"{name}.weight", 0, (part,), rows)

    def _split_experts(self, name: str, parameter: nn.Parameter, style: str) -> None:
        """Weights of all experts in one tensor: [num_experts, outputs, inputs]."""
        parent_name, _, attribute = name.rpartition(".")
        parent = self._model.get_submodule(parent_name)
        if parameter.dim() != 3 or getattr(parent, "is_transposed", False):
            raise self._refusal(f"{name} is not one matrix per expert")
        if style == "packed_colwise":
            piece = Piece(name, 1, packed_share(parameter.shape[1], self._rank, self._size))
        elif style == "colwise":
            piece = Piece(name, 1, (share(parameter.shape[1], self._rank, self._size),))
        elif style == "rowwise":
            piece = Piece(name, 2, (share(parameter.shape[2], self._rank, self._size),))
        else:
            raise self._refusal(f"{name} is {style} in its plan")
        shape = list(parameter.shape)
        shape[piece.dim] = sum(stop - start for start, stop in piece.ranges or ())
        setattr(parent, attribute, _meta_parameter(*shape, dtype=parameter.dtype))
        self._pieces[name] = piece


def _meta_linear(
    in_features: int, out_features: int, *, like: nn.Linear, bias: bool | None = None
) -> nn.Linear:
    has_bias = like.bias is not None if bias is None else bias
    return nn.Linear(
        in_features, out_features, bias=has_bias, dtype=like.weight.dtype, device="meta"
    )


def _meta_parameter(*shape: int, dtype: torch.dtype) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape, dtype=dtype, device="meta"), requires_grad=False)
