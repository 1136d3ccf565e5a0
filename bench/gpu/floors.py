"""The bytes that a kernel cannot do without, and the operations of attention."""

from collections.abc import Sequence

from pagefleet_kernels.kv_layout import ROW_FORMATS, code_bytes, scale_bytes

HALF = 2  # bytes of bf16
INT4_WEIGHT_BYTES = 0.5 + (HALF + 0.5) / 128  # a code, and scale and zero of a group of 128


def kv_token_bytes(mode: str, *, num_kv_heads: int, head_dim: int) -> int:
    """Keys and values of one token in one layer, scales included."""
    return num_kv_heads * sum(
        code_bytes(form, head_dim) + scale_bytes(form, head_dim) for form in ROW_FORMATS[mode]
    )


def decode_bytes(
    mode: str, lengths: Sequence[int], *, num_heads: int, num_kv_heads: int, head_dim: int
) -> int:
    """Every key and value once, queries and results."""
    stored = sum(lengths) * kv_token_bytes(mode, num_kv_heads=num_kv_heads, head_dim=head_dim)
    return stored + 2 * len(lengths) * num_heads * head_dim * HALF


def prefill_flops(queries: Sequence[tuple[int, int]], *, num_heads: int, head_dim: int) -> float:
    """Two products, each of two operations a key that a token sees; (query_len, cached) each."""
    seen = sum(query * (cached + (query + 1) / 2) for query, cached in queries)
    return 4 * num_heads * head_dim * seen


def store_bytes(mode: str, num_tokens: int, *, num_kv_heads: int, head_dim: int) -> int:
    """Keys and values are read in bf16 and written in the cache's form."""
    read = 2 * num_kv_heads * head_dim * HALF
    return num_tokens * (read + kv_token_bytes(mode, num_kv_heads=num_kv_heads, head_dim=head_dim))


def rope_store_bytes(
    mode: str, num_tokens: int, *, num_heads: int, num_kv_heads: int, head_dim: int
) -> int:
    """As `store_bytes`; queries are read and written in bf16 besides."""
    queries = num_tokens * 2 * num_heads * head_dim * HALF
    stored = store_bytes(mode, num_tokens, num_kv_heads=num_kv_heads, head_dim=head_dim)
    return queries + stored


def add_norm_bytes(num_rows: int, width: int) -> int:
    """Two tensors are read and two written."""
    return 4 * num_rows * width * HALF


def silu_mul_bytes(num_rows: int, width: int) -> int:
    return 3 * num_rows * width * HALF


def block_copy_bytes(num_pairs: int, record_bytes: int) -> int:
    return 2 * num_pairs * record_bytes


def sampling_bytes(num_rows: int, vocab_size: int, element_bytes: int) -> int:
    """One read of the logits."""
    return num_rows * vocab_size * element_bytes


def int4_matmul_bytes(num_rows: int, in_features: int, out_features: int) -> float:
    weight = INT4_WEIGHT_BYTES * in_features * out_features
    return weight + num_rows * (in_features + out_features) * HALF


def fp8_matmul_bytes(num_rows: int, in_features: int, out_features: int) -> int:
    weight = in_features * out_features + 4 * out_features
    return weight + num_rows * (in_features + out_features) * HALF
