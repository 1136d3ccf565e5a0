"""Weights of one rank as vLLM holds them: fused, padded, copied, and rounded by the allocator."""

from pagefleet_memory.dtypes import dtype_bytes
from pagefleet_memory.layers import LayerKind
from pagefleet_memory.matrices import Matrix
from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.parallelism import stage_bounds
from pagefleet_memory.units import MIB
from pagefleet_memory.vllm.release import Release
from pagefleet_memory.vllm.run import Run

_VOCABULARY_MULTIPLE = 64
# Tensors from this size on get a segment of their own, in whole units; what is left over of a
# segment stays unused up to the last threshold (PyTorch's CUDA caching allocator).
_LARGE_TENSOR = 10 * MIB
_SEGMENT_UNIT = 2 * MIB
_LARGEST_WASTE = MIB
_ALIGNMENT = 512


def rank_weights(shape: ModelShape, run: Run, stage: int) -> int:
    """Bytes of one rank of a pipeline stage after loading, without rotary tables."""
    start, end = stage_bounds(shape.num_layers, run.pipeline_parallel_size)[stage]
    pattern = shape.layer_pattern[start:end]
    layers = sum(
        pattern.count(index) * _layer_bytes(shape, kind, run)
        for index, kind in enumerate(shape.layer_kinds)
    )
    return layers + _outside_bytes(shape, run, stage)


def rope_bytes(shape: ModelShape, run: Run) -> int:
    """Rotary tables, which logs count as weights; every rank holds them whole."""
    size = dtype_bytes(run.dtype)
    sizes = [table.positions * table.width * size for table in shape.rope_tables]
    return sum(allocated(size, run.release) for size in sizes)


def allocated(size: int, release: Release) -> int:
    """What a tensor takes of the device: its size, or whole units where the rest is unusable."""
    if size >= _LARGE_TENSOR and release.wastes_segments:
        segment = -(-size // _SEGMENT_UNIT) * _SEGMENT_UNIT
        if segment - size <= _LARGEST_WASTE:
            return segment
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _layer_bytes(shape: ModelShape, kind: LayerKind, run: Run) -> int:
    sizes = [_matrix_bytes(kind, matrix, run) for matrix in kind.weights.matrices]
    total = sum(allocated(size, run.release) for size in sizes)
    return total + (_latent_copies(shape, kind, run) if shape.is_mla else 0)


def _matrix_bytes(kind: LayerKind, matrix: Matrix, run: Run) -> int:
    size = dtype_bytes(run.dtype)
    if ".experts." in matrix.name:
        return _expert_bytes(matrix, run, size)
    attention, tp = kind.attention, run.tensor_parallel_size
    heads, local = max(1, attention.kv_heads), attention.local_kv_heads(tp)
    rows, columns = matrix.plain_shape(tp, kv_heads=heads, kv_local=local)
    return matrix.bytes_of(rows, columns, size)


def _expert_bytes(matrix: Matrix, run: Run, size: int) -> int:
    """All local experts are one tensor: some of them whole, or a slice of each."""
    ranks = run.tensor_parallel_size * run.data_parallel_size
    if run.expert_parallel:
        copies, (rows, columns) = -(-matrix.copies // ranks), (matrix.rows, matrix.columns)
    else:
        copies, (rows, columns) = matrix.copies, matrix.plain_shape(ranks)
    if matrix.packing == "mxfp4":
        rows, columns = _padded(matrix, rows, columns, run)
    return copies * matrix.bytes_of(rows, columns, size)


def _padded(matrix: Matrix, rows: int, columns: int, run: Run) -> tuple[int, int]:
    """MXFP4 kernels want a hidden width of 256s, and most an inner width of 128s or 256s."""
    inner = _inner_multiple(run)
    if matrix.split == "rows":
        return _multiple(rows, 2 * inner), _multiple(columns, 256)
    return _multiple(rows, 256), _multiple(columns, inner)


def _inner_multiple(run: Run) -> int:
    """Blackwell's kernels 256; Marlin 128, which cards before Hopper use, and Hopper since 0.18."""
    if run.is_blackwell:
        return 256
    return 32 if run.is_hopper and run.release < Release(0, 18) else 128


def _latent_copies(shape: ModelShape, kind: LayerKind, run: Run) -> int:
    """MLA's up-projection once more, unpacked; in 0.7 also its products with its neighbours."""
    tp = run.tensor_parallel_size
    up = next(m for m in kind.weights.matrices if m.name == "self_attn.kv_b_proj")
    if not run.release.absorbs_latent_projections:
        return allocated(up.parameters // tp * 2, run.release)
    heads = -(-shape.num_attention_heads // tp)
    query = next(m for m in kind.weights.matrices if m.name == "self_attn.q_b_proj")
    rope = kind.attention.v_width
    elements = heads * (query.columns + shape.hidden_size) * shape.kv_lora_rank
    elements += heads * query.columns * rope
    return elements * (1 if up.packing.startswith("fp8") else 2)


def _outside_bytes(shape: ModelShape, run: Run, stage: int) -> int:
    first, last = stage == 0, stage == run.pipeline_parallel_size - 1
    tp, size = run.tensor_parallel_size, dtype_bytes(run.dtype)
    rows = _multiple(shape.vocab_size, _VOCABULARY_MULTIPLE) // tp
    table = allocated(rows * shape.hidden_size * size, run.release)
    positions = shape.embedding_parameters - shape.vocab_size * shape.hidden_size
    total = table + positions * size if first else 0
    if first and not run.text_only:
        total += shape.tower_parameters * size // tp
    if not last:
        return total
    total += shape.final_parameters * size
    if shape.tie_word_embeddings:
        return total + (0 if first else table)
    return total + allocated(shape.head_bytes(rows * shape.hidden_size, size), run.release)


def _multiple(value: int, unit: int) -> int:
    return -(-value // unit) * unit
