"""What one decoder layer holds: its cache rows or state, and its weight matrices."""

from dataclasses import dataclass

from pagefleet_memory.matrices import Matrix


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """The rows a layer writes to the KV cache for one token."""

    kv_heads: int  # 0 where the layer keeps no rows
    k_width: int
    v_width: int
    # True where each TP rank needs every row (the MLA latent); heads are split otherwise.
    replicated: bool = False
    # A token attends to this many predecessors; None means all.
    window: int | None = None
    # One more row per token beside the heads, whole on every rank: a sparse indexer's key.
    index_width: int = 0

    def local_kv_heads(self, tensor_parallel_size: int) -> int:
        """Heads that one rank keeps: with fewer heads than ranks each head is copied."""
        if self.replicated:
            return self.kv_heads
        return -(-self.kv_heads // tensor_parallel_size)


@dataclass(frozen=True, slots=True)
class StateShape:
    """The constant state that a linear-attention layer keeps per sequence."""

    conv_channels: int
    conv_steps: int  # past inputs the convolution needs
    heads: int
    key_width: int
    value_width: int

    def bytes_per_sequence(
        self, element_bytes: int, *, tensor_parallel_size: int = 1, extra_steps: int = 0
    ) -> int:
        """Convolution inputs in the compute dtype and a float32 matrix per head, on one rank."""
        tp = tensor_parallel_size
        conv = (self.conv_steps + extra_steps) * -(-self.conv_channels // tp) * element_bytes
        return conv + -(-self.heads // tp) * self.key_width * self.value_width * 4


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """The matrices of one layer."""

    matrices: tuple[Matrix, ...]

    @property
    def total(self) -> int:
        """All parameters of the layer."""
        return sum(matrix.parameters for matrix in self.matrices)

    @property
    def experts(self) -> int:
        """Parameters of routed experts."""
        return sum(m.parameters for m in self.matrices if ".experts." in m.name)

    @property
    def mlp(self) -> int:
        """Parameters of the dense MLP and of shared experts."""
        split = [m for m in self.matrices if m.name.startswith("mlp.") and m.split != "whole"]
        return sum(m.parameters for m in split if ".experts." not in m.name)

    @property
    def replicated(self) -> int:
        """Parameters that every rank holds: norms, router, MLA down-projections."""
        return sum(m.parameters for m in self.matrices if m.split == "whole")


@dataclass(frozen=True, slots=True)
class LayerKind:
    """A kind of decoder layer; a model has one or a few kinds in a fixed pattern."""

    attention: AttentionShape
    weights: LayerWeights
    state: StateShape | None = None
