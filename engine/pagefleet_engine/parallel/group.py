"""RankGroup: the collectives of one rank, within its stage and between neighbouring stages."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from pagefleet_engine.parallel.placement import Place

# The links tell of dead ranks at once; this bounds what they cannot see, such as a rank that hangs.
COLLECTIVE_TIMEOUT = timedelta(minutes=5)


class RankGroup:
    """Made by all ranks at the same time; `close` leaves the default group for the next one."""

    def __init__(self, place: Place, store: Store, device: torch.device) -> None:
        self.place = place
        self.device = device
        if place.node.count == 1:  # the pod's own name may not resolve to an address
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group(
            backend="nccl" if device.type == "cuda" else "gloo",
            store=PrefixStore("collectives", store),
            rank=place.rank,
            world_size=place.num_ranks,
            timeout=COLLECTIVE_TIMEOUT,
            device_id=device if device.type == "cuda" else None,
        )
        self._tensor_group = self._join_tensor_group()

    def _join_tensor_group(self) -> dist.ProcessGroup | None:
        """Every rank takes part in making every group, its own or not."""
        size = self.place.tensor_size
        own: dist.ProcessGroup | None = None
        for first in range(0, self.place.num_ranks, size):
            ranks = list(range(first, first + size))
            group = dist.new_group(ranks, timeout=COLLECTIVE_TIMEOUT)
            if isinstance(group, dist.ProcessGroup):  # else this rank is not in it
                own = group
        return own

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over the ranks of the stage."""
        tensor = tensor.contiguous()
        dist.all_reduce(tensor, group=self._tensor_group)
        return tensor

    def gather_columns(self, tensor: torch.Tensor) -> torch.Tensor:
        """The last dimension of all ranks of the stage, side by side."""
        tensor = tensor.contiguous()
        parts = [torch.empty_like(tensor) for _ in range(self.place.tensor_size)]
        dist.all_gather(parts, tensor, group=self._tensor_group)
        return torch.cat(parts, dim=-1)

    def all_agree(self, can: bool) -> bool:
        """Whether every rank of every stage can; all of them ask at the same time."""
        flag = torch.tensor([int(can)], device=self.device)
        dist.all_reduce(flag, op=dist.ReduceOp.MIN)
        return bool(flag.item())

    def send_to_next(self, tensor: torch.Tensor) -> None:
        dist.send(tensor.contiguous(), dst=self.place.next_rank)

    def receive_from_previous(self, room: torch.Tensor) -> None:
        dist.recv(room, src=self.place.previous_rank)

    def close(self) -> None:
        dist.destroy_process_group()
