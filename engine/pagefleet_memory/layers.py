"""What one decoder layer holds: its cache rows, and its parameters by how TP splits them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """The rows a layer writes to the KV cache for one token."""

    kv_heads: int
    k_width: int
    v_width: int
    # True where each TP rank needs every row (the MLA latent); heads are split otherwise.
    replicated: bool = False
    # A token attends to this many predecessors; None means all.
    window: int | None = None

    def local_kv_heads(self, tensor_parallel_size: int) -> int:
        """Heads that one rank keeps: with fewer heads than ranks each head is copied."""
        if self.replicated:
            return self.kv_heads
        return max(1, -(-self.kv_heads // tensor_parallel_size))


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Parameters of one layer, grouped by how tensor parallelism splits them."""

    heads: int  # query and output projections: split over ranks
    kv_heads: int  # key and value projections: split over KV heads, copied beyond them
    mlp: int  # dense MLP and shared experts: split over ranks
    experts: int  # routed experts: split over ranks
    replicated: int  # norms, router, MLA down-projections: whole on every rank

    @property
    def total(self) -> int:
        """All parameters of the layer."""
        return self.heads + self.kv_heads + self.mlp + self.experts + self.replicated


@dataclass(frozen=True, slots=True)
class LayerKind:
    """A kind of decoder layer; a model has one or a few kinds in a fixed pattern."""

    attention: AttentionShape
    weights: LayerWeights
