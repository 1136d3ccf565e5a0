"""Which node and which rank a process is, and the part of the model that a rank holds."""

from collections.abc import Mapping
from dataclasses import dataclass

from pagefleet_engine.config import EngineConfig
from pagefleet_engine.errors import ConfigError

DEFAULT_PORT = 29500


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One pod of a replica; each runs the same number of ranks."""

    rank: int = 0
    count: int = 1
    master_address: str = "127.0.0.1"
    master_port: int = 0  # any free one where nobody outside has to know it


def read_node(config: EngineConfig, environ: Mapping[str, str]) -> Node:
    """From NODE_RANK, NUM_NODES, MASTER_ADDR and MASTER_PORT; without them the only node."""
    count = _read_int(environ, "NUM_NODES", 1)
    rank = _read_int(environ, "NODE_RANK", 0)
    if count < 1 or config.num_ranks % count:
        raise ConfigError(
            "NUM_NODES",
            count,
            f"must divide the {config.num_ranks} ranks of tensor_parallel_size="
            f"{config.tensor_parallel_size} x pipeline_parallel_size="
            f"{config.pipeline_parallel_size}",
        )
    if not 0 <= rank < count:
        raise ConfigError("NODE_RANK", rank, f"must be between 0 and {count - 1}")
    if count == 1:
        return Node()
    address = environ.get("MASTER_ADDR", "")
    if not address:
        raise ConfigError("MASTER_ADDR", address, "must name the pod of NODE_RANK 0")
    port = _read_int(environ, "MASTER_PORT", DEFAULT_PORT)
    return Node(rank=rank, count=count, master_address=address, master_port=port)


def _read_int(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        raise ConfigError(name, text, "must be a whole number") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One rank's place.

    Rank 0 has the engine core. It belongs to the last stage, so that tokens are sampled where the
    scheduler is; the embedding is on the highest ranks.
    """

    rank: int
    node: Node
    tensor_size: int
    num_stages: int

    @property
    def num_ranks(self) -> int:
        return self.tensor_size * self.num_stages

    @property
    def ranks_per_node(self) -> int:
        return self.num_ranks // self.node.count

    @property
    def local_rank(self) -> int:
        return self.rank % self.ranks_per_node

    @property
    def stage(self) -> int:
        return self.num_stages - 1 - self.rank // self.tensor_size

    @property
    def tensor_rank(self) -> int:
        return self.rank % self.tensor_size

    @property
    def is_first_stage(self) -> bool:
        return self.stage == 0

    @property
    def is_last_stage(self) -> bool:
        return self.stage == self.num_stages - 1

    @property
    def previous_rank(self) -> int:
        """The rank that this one gets its hidden states from."""
        return self.rank + self.tensor_size

    @property
    def next_rank(self) -> int:
        return self.rank - self.tensor_size

    def describe(self) -> str:
        return f"rank {self.rank} (stage {self.stage}, tensor rank {self.tensor_rank})"


def node_places(config: EngineConfig, node: Node) -> list[Place]:
    """The places of a node's ranks, in order."""
    per_node = config.num_ranks // node.count
    return [
        Place(
            rank=rank,
            node=node,
            tensor_size=config.tensor_parallel_size,
            num_stages=config.pipeline_parallel_size,
        )
        for rank in range(node.rank * per_node, (node.rank + 1) * per_node)
    ]
