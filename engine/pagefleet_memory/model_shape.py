"""ModelShape: everything the memory model needs to know about a model, from its config.json."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pagefleet_memory.checkpoint import CheckpointSummary
from pagefleet_memory.dtypes import dtype_bytes, kv_row_bytes, resolve_kv_dtype
from pagefleet_memory.errors import ShapeError
from pagefleet_memory.layers import LayerKind
from pagefleet_memory.packing import packed_bytes
from pagefleet_memory.quantization import Quantization
from pagefleet_memory.rope import RopeTable


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder-only language model: sizes, layers and parameters."""

    architecture: str
    model_type: str
    num_layers: int
    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    v_head_dim: int
    intermediate_size: int
    vocab_size: int
    tie_word_embeddings: bool
    max_position_embeddings: int
    dtype: str  # as stored
    layer_kinds: tuple[LayerKind, ...]
    layer_pattern: tuple[int, ...]  # for each layer the index of its kind
    embedding_parameters: int  # input embedding and learned positions
    head_parameters: int  # output head; 0 where it is the input embedding
    final_parameters: int  # what stands after the last layer: the final norm, the head's bias
    num_experts: int = 0
    experts_per_token: int = 0
    moe_intermediate_size: int = 0
    kv_lora_rank: int = 0
    tower_parameters: int = 0  # encoders of images or sound beside the text model
    pixels_per_token: int = 0  # image data behind one token; 0 for a text model
    head_packing: str = ""  # quantized form of the output head; empty for plain floats
    rope_tables: tuple[RopeTable, ...] = ()
    quantization: Quantization | None = None
    checkpoint: CheckpointSummary | None = None
    # What the numbers leave out, in words for a user: a tower, guessed layers.
    remarks: tuple[str, ...] = ()

    @staticmethod
    def from_config(
        config: Mapping[str, object], *, checkpoint: CheckpointSummary | None = None
    ) -> "ModelShape":
        """Read a Hugging Face config.json; raises ShapeError with the field at fault."""
        from pagefleet_memory.shape_reader import read_shape

        return read_shape(config, checkpoint)

    @staticmethod
    def from_summary(summary: Mapping[str, object]) -> "ModelShape":
        """Read what `to_summary` wrote."""
        from pagefleet_memory.shape_summary import shape_from_summary

        return shape_from_summary(summary)

    def to_summary(self) -> dict[str, object]:
        """A JSON-able form below 3000 bytes that `from_summary` reads back unchanged."""
        from pagefleet_memory.shape_summary import shape_to_summary

        return shape_to_summary(self)

    @property
    def layers(self) -> tuple[LayerKind, ...]:
        """The kind of each layer, in order."""
        return tuple(self.layer_kinds[index] for index in self.layer_pattern)

    @property
    def is_mla(self) -> bool:
        """True where the cache holds a latent in place of heads."""
        return self.kv_lora_rank > 0

    @property
    def is_multimodal(self) -> bool:
        """True where an encoder feeds the text model."""
        return self.tower_parameters > 0

    @property
    def sliding_window(self) -> int | None:
        """The widest sliding window of any layer; None where every layer sees all tokens."""
        windows = [kind.attention.window for kind in self.layer_kinds if kind.attention.window]
        return max(windows, default=None)

    @property
    def unsupported_by_engine(self) -> str | None:
        """Why pagefleet's engine cannot run the model; None where it can."""
        if any(kind.state for kind in self.layer_kinds):
            return "keeps recurrent state in some of its layers"
        if self.is_mla:
            return "caches a latent in place of keys and values"
        return None

    def require_engine_support(self) -> None:
        """Raise ShapeError where pagefleet's engine cannot run the model."""
        reason = self.unsupported_by_engine
        if reason:
            raise ShapeError(
                f"{self.model_type!r} {reason}, which is not supported",
                field="model_type",
                value=self.model_type,
                hint="use a model whose layers all attend and cache keys and values",
            )

    @property
    def num_parameters(self) -> int:
        """Parameters of the text model, counted from the shapes of its matrices."""
        outside = self.embedding_parameters + self.head_parameters + self.final_parameters
        return outside + self._sum_over_layers([kind.weights.total for kind in self.layer_kinds])

    @property
    def active_parameters(self) -> int:
        """Parameters that one token passes through: routed experts count as chosen."""
        idle = 0
        if self.num_experts:
            skipped = max(0, self.num_experts - self.experts_per_token)
            routed = self._sum_over_layers([k.weights.experts for k in self.layer_kinds])
            idle = routed * skipped // self.num_experts
        return self.num_parameters - idle

    def weight_bytes(self, dtype: str) -> int:
        """Bytes of all weights once loaded as `dtype`: exact where the checkpoint says so."""
        size = dtype_bytes(dtype)
        if self.checkpoint is not None:
            if self.quantization is not None or self.checkpoint.dtype == dtype:
                return self.checkpoint.bytes_as(dtype)
            return max(self.num_parameters, self.checkpoint.num_parameters) * size
        outside = self.embedding_parameters + self.final_parameters + self.tower_parameters
        layers = self._sum_over_layers([_kind_bytes(kind, size) for kind in self.layer_kinds])
        return outside * size + self.head_bytes(self.head_parameters, size) + layers

    def head_bytes(self, parameters: int, element_bytes: int) -> int:
        """Bytes of this many parameters of the output head."""
        if not self.head_packing or not parameters:
            return parameters * element_bytes
        return packed_bytes(self.head_packing, parameters // self.hidden_size, self.hidden_size)

    def kv_bytes_per_token(self, kv_dtype: str, *, dtype: str | None = None) -> int:
        """Bytes one token takes in the KV cache over all layers of one unsharded replica."""
        concrete = resolve_kv_dtype(kv_dtype, dtype or self.dtype)
        return self._sum_over_layers([kv_bytes_per_layer(k, concrete) for k in self.layer_kinds])

    def _sum_over_layers(self, of_kinds: Sequence[int]) -> int:
        """The sum over all layers of a number that each kind has."""
        counts = [self.layer_pattern.count(index) for index in range(len(self.layer_kinds))]
        return sum(count * value for count, value in zip(counts, of_kinds, strict=True))


def _kind_bytes(kind: LayerKind, element_bytes: int) -> int:
    return sum(
        matrix.copies * matrix.bytes_of(matrix.rows, matrix.columns, element_bytes)
        for matrix in kind.weights.matrices
    )


def kv_bytes_per_layer(kind: LayerKind, kv_dtype: str, *, tensor_parallel_size: int = 1) -> int:
    """Bytes one token takes in one layer's cache on one rank; `kv_dtype` is concrete."""
    attention = kind.attention
    row = kv_row_bytes(attention.k_width, kv_dtype, part="key")
    row += kv_row_bytes(attention.v_width, kv_dtype, part="value")
    return attention.local_kv_heads(tensor_parallel_size) * row
