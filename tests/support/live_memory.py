"""LiveMemory: bytes of the tensors that code has alive at a time, counted operator by operator."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own
    """Counts storages that appear under it; those that were there before are not its matter."""

    def __init__(self, *known: torch.Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak_bytes = 0
        self._known = {each.untyped_storage().data_ptr() for each in known}
        self._alive: list[weakref.ref[torch.Tensor]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        made = [each for each in tree_leaves(result) if isinstance(each, torch.Tensor)]
        self._alive += [weakref.ref(each) for each in made]
        self.peak_bytes = max(self.peak_bytes, self._live_bytes())
        return result

    def _live_bytes(self) -> int:
        self._alive = [each for each in self._alive if each() is not None]
        storages = {
            tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
            for tensor in (each() for each in self._alive)
            if tensor is not None
        }
        return sum(size for place, size in storages.items() if place not in self._known)


@contextmanager
def live_memory(*known: torch.Tensor) -> Iterator[LiveMemory]:
    with torch.inference_mode(), LiveMemory(*known) as memory:
        yield memory
