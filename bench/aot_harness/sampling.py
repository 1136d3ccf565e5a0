"""The three kernels of sampling, for logits of each type."""

from bench.aot_harness.gates import FITS_SHARED, NO_SPILLS, WIDE_LOADS, resident
from bench.aot_harness.variant import Gate, KernelSource, Variant
from pagefleet_kernels.gpu.sampling import CHUNK

MODULE = "pagefleet_kernels.gpu.sampling"
ROWS = {
    "temperatures": "*fp32",
    "thresholds": "*fp32",
    "seeds": "*i64",
    "positions": "*i64",
    "best_scores": "*fp32",
    "best_tokens": "*i32",
}
TESTED = (90,)  # the bench compiles the others too
GATES = (NO_SPILLS, FITS_SHARED, resident(2))


def variants() -> list[Variant]:
    streaming = (*GATES, WIDE_LOADS)
    made = [_threshold(element, streaming) for element in ("fp32", "bf16")]
    made += [_draw(element, streaming) for element in ("fp32", "bf16")]
    return [*made, _pick()]


def _threshold(element: str, gates: tuple[Gate, ...]) -> Variant:
    source = KernelSource(
        function=f"{MODULE}:threshold_kernel",
        arguments={
            "logits": f"*{element}",
            "temperatures": "*fp32",
            "top_ks": "*i32",
            "top_ps": "*fp32",
            "min_ps": "*fp32",
            "thresholds": "*fp32",
            "vocab_size": "i32",
            "stride": "i32",
        },
        constants={"CHUNK": CHUNK},
        aligned=("logits", "vocab_size", "stride"),
        num_warps=8,
    )
    return Variant(
        kernel="sampling_threshold", variant=element, source=source, gates=gates, tested=TESTED
    )


def _draw(element: str, gates: tuple[Gate, ...]) -> Variant:
    source = KernelSource(
        function=f"{MODULE}:draw_kernel",
        arguments={
            "logits": f"*{element}",
            **ROWS,
            "vocab_size": "i32",
            "stride": "i32",
            "num_chunks": "i32",
        },
        constants={"CHUNK": CHUNK},
        aligned=("logits", "vocab_size", "stride"),
        num_warps=8,
    )
    return Variant(
        kernel="sampling_draw", variant=element, source=source, gates=gates, tested=TESTED
    )


def _pick() -> Variant:
    source = KernelSource(
        function=f"{MODULE}:pick_kernel",
        arguments={
            "best_scores": "*fp32",
            "best_tokens": "*i32",
            "tokens": "*i64",
            "num_chunks": "i32",
            "vocab_size": "i32",
        },
        constants={"CHUNKS": 64},
        num_warps=1,
    )
    return Variant(
        kernel="sampling_pick", variant="64 chunks", source=source, gates=GATES, tested=TESTED
    )
