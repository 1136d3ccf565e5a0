"""What share of the machine's own rates a kernel has to reach, from published kernels."""

FULL_TOKENS = 512 * 1024  # keys of a batch from which decoding fills a large GPU
LONG_TOKENS = 32 * 1024  # of a single sequence
ELEMENTWISE_BYTES = 32 << 20  # below it, launches count
RATIO_BYTES = 1 << 30  # of keys and values in bf16, from which narrower ones have to save time

DECODE_MARKS = {
    "bfloat16": 0.85,
    "fp8_e4m3": 0.75,
    "int8": 0.75,
    "int8k_int4v": 0.60,
    "int4": 0.60,
}
MOST_RATIOS = {"fp8_e4m3": 0.62, "int8": 0.62, "int4": 0.45}
LONG_MARK = 0.70
ELEMENTWISE_MARK = 0.85
STORE_MARK, STORE_TOKENS = 0.70, 4096
PREFILL_MARK, PREFILL_TOKENS = 0.60, 8192
INT4_MATMUL_MARK, INT4_MATMUL_ROWS = 0.70, 16


def decode_mark(mode: str, *, batch: int, length: int) -> float | None:
    if batch * length >= FULL_TOKENS:
        return DECODE_MARKS[mode]
    if batch == 1 and length == LONG_TOKENS and mode == "bfloat16":
        return LONG_MARK
    return None


def most_ratio(mode: str, *, bf16_bytes: float) -> float | None:
    """Of the time that bf16 takes for the same batch."""
    return MOST_RATIOS.get(mode) if bf16_bytes >= RATIO_BYTES else None


def elementwise_mark(num_bytes: float) -> float | None:
    return ELEMENTWISE_MARK if num_bytes >= ELEMENTWISE_BYTES else None


def store_mark(num_tokens: int) -> float | None:
    return STORE_MARK if num_tokens >= STORE_TOKENS else None


def prefill_mark(mode: str, *, query_len: int, cached: int) -> float | None:
    full = query_len >= PREFILL_TOKENS and cached == 0
    return PREFILL_MARK if full and mode == "bfloat16" else None


def int4_matmul_mark(num_rows: int) -> float | None:
    return INT4_MATMUL_MARK if num_rows <= INT4_MATMUL_ROWS else None
