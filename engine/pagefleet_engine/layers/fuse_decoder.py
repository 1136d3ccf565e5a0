"""Fuse a model's decoder layers, each only after it was tried beside Hugging Face's own.

One forward shows how the model calls its layers and what it does between them: where a layer's
output is the next one's input and nothing else, the sum between them is left to the next norm.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import nn
from transformers import PreTrainedModel

from pagefleet_engine.layers.agreement import KeepAsItIs
from pagefleet_engine.layers.fused_layer import FusedLayer
from pagefleet_engine.layers.fused_norm import FusedFinalNorm, FusedNorm, read_norm
from pagefleet_engine.layers.joined import has_hooks
from pagefleet_engine.layers.layer_trial import LayerCall, LayerTrial
from pagefleet_kernels import KernelBackend

logger = logging.getLogger(__name__)

TRIAL_TOKENS = 16

Calls = dict[nn.Module, LayerCall]
Forwards = dict[nn.Module, FusedLayer | FusedFinalNorm]


@dataclass(slots=True)
class FusedDecoder:
    """What was done to a model."""

    layers: int = 0
    kept: Counter[str] = field(default_factory=Counter)  # layers left as they are, by reason

    def __str__(self) -> str:
        text = f"fused {self.layers} of {self.layers + self.kept.total()} decoder layers"
        reasons = (f"{count} stay as they are: {reason}" for reason, count in self.kept.items())
        return "; ".join((text, *reasons))


def fuse_decoder(
    model: PreTrainedModel, backend: KernelBackend, run: Callable[[], None]
) -> FusedDecoder:
    """In place; `run` is a forward at `trial_positions` with any attention attached.

    Another attention must be attached afterwards. Ranks do it at the same time.
    """
    done, fused = FusedDecoder(), Forwards()
    last = getattr(model.base_model, "norm", None)
    layers = [each for each in model.modules() if each._modules.get("self_attn") is not None]
    calls = _watch([*layers, *([last] if isinstance(last, nn.Module) else [])], run)
    for layer in layers:
        try:
            fused[layer] = _tried(layer, calls.get(layer), backend)
        except (KeepAsItIs, RuntimeError, TypeError, ValueError) as error:
            done.kept[str(error)] += 1
    done.layers = len(fused)
    if isinstance(last, nn.Module) and fused:
        _fuse_norm(last, fused, backend)
    _leave_sums(calls, fused)
    for module, forward in fused.items():
        module.forward = forward  # which nn.Module's __call__ finds before its class's
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # of weights that were joined
    logger.info("%s", done)
    return done


def trial_positions(max_model_len: int, device: torch.device) -> torch.Tensor:
    """From the first to the last that is served: some models scale what lies far out."""
    steps = torch.arange(TRIAL_TOKENS, device=device)
    return steps * (max_model_len - 1) // (TRIAL_TOKENS - 1)


def _watch(modules: Iterable[nn.Module], run: Callable[[], None]) -> Calls:
    """How each module is called in one forward, in the order of the calls."""
    calls = Calls()

    def note(
        module: nn.Module, arguments: tuple[object, ...], named: dict[str, object], output: object
    ) -> None:
        if arguments and isinstance(arguments[0], torch.Tensor):
            calls[module] = LayerCall(arguments[0], arguments[1:], named, output)

    hooks = [each.register_forward_hook(note, with_kwargs=True) for each in modules]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return calls


def _tried(layer: nn.Module, call: LayerCall | None, backend: KernelBackend) -> FusedLayer:
    if call is None:
        raise KeepAsItIs("it is not called with hidden states")
    trial = LayerTrial(layer, call)
    fused = FusedLayer(layer, trial.index, trial.use, backend)
    trial.check(fused)
    return fused


def _fuse_norm(norm: nn.Module, fused: Forwards, backend: KernelBackend) -> None:
    try:
        fused[norm] = FusedFinalNorm(FusedNorm(read_norm(norm), backend))
    except KeepAsItIs as error:
        logger.info("the last norm stays as it is: %s", error)


def _leave_sums(calls: Calls, fused: Forwards) -> None:
    for (layer, call), (follower, following) in pairwise(calls.items()):
        forward = fused.get(layer)
        is_handed_on = follower in fused and following.hidden is call.output
        is_seen = has_hooks(layer) or has_hooks(follower)
        if isinstance(forward, FusedLayer) and is_handed_on and not is_seen:
            forward.defers = True
