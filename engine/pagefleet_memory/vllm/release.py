"""vLLM releases, as far as their memory differs."""

import re
from dataclasses import dataclass

from pagefleet_memory.errors import LimitError

_VERSION = re.compile(r"v?(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, order=True)
class Release:
    """A major and a minor number; what changed memory changed with a minor one."""

    major: int
    minor: int

    @staticmethod
    def parse(version: str) -> "Release":
        """The release of a version such as 0.10.1.dev101 or 0.11.x."""
        match = _VERSION.match(version.strip())
        if match is None:
            raise LimitError(
                f"{version!r} is not a version", field="version", value=version, hint="use 0.19.0"
            )
        return Release(int(match[1]), int(match[2]))

    @property
    def absorbs_latent_projections(self) -> bool:
        """0.7 kept the products of MLA's projections beside the projections themselves."""
        return Release(0, 7) <= self < Release(0, 8)

    @property
    def pads_latent_rows(self) -> bool:
        """The first engine aligned each row of the MLA cache to 256 bytes."""
        return self < Release(0, 8)

    @property
    def groups_windows(self) -> bool:
        """Sliding layers have blocks of their own since the hybrid allocator."""
        return self >= Release(0, 11)

    @property
    def sorts_logits(self) -> bool:
        """Until 0.16 the sampler sorted whole rows of logits."""
        return self < Release(0, 17)

    @property
    def counts_graphs(self) -> bool:
        """From 0.21 captured graphs are taken out of the budget before the KV pool."""
        return self >= Release(0, 21)

    @property
    def logs_tokens_of_full_requests(self) -> bool:
        """From 0.21 the logged tokens are concurrency times the longest request."""
        return self >= Release(0, 21)

    @property
    def wastes_segments(self) -> bool:
        """Until 0.20 a large tensor kept what it left over of its segment."""
        return self < Release(0, 21)

    @property
    def fuses_all_reduce(self) -> bool:
        """From 0.18 collectives of one node keep large fused buffers."""
        return self >= Release(0, 18)

    @property
    def default_utilization(self) -> float:
        """The share of memory that is used where a run does not say."""
        return 0.92 if self >= Release(0, 21) else 0.90
