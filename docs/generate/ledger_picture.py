"""docs/images/ledger.svg: the ledgers of some plans as stacked bars, in true proportion."""

from collections.abc import Iterator
from html import escape

from pagefleet_memory import Ledger, NodeGroup, Workload, accelerator_from_labels, plan_serving
from pagefleet_memory.catalogue import known_model
from pagefleet_memory.ledger import TERM_NAMES

# Title, model, product, GPUs a node, tokens of the longest request.
_PLANS = (
    ("Llama-3.1-8B on 1 x L4", "Llama-3.1-8B-Instruct", "NVIDIA-L4", 1, 16384),
    ("Llama-3.1-8B on 1 x H100", "Llama-3.1-8B-Instruct", "NVIDIA-H100-80GB-HBM3", 1, 16384),
    ("Llama-3.3-70B on 2 x H100", "Llama-3.3-70B-Instruct", "NVIDIA-H100-80GB-HBM3", 2, 32768),
    ("Llama-3.3-70B on 4 x H100", "Llama-3.3-70B-Instruct", "NVIDIA-H100-80GB-HBM3", 4, 131072),
)
_COLORS = dict(
    zip(
        TERM_NAMES,
        ("#3b6fb6", "#7fb2e5", "#e0a030", "#f2cf7c", "#9a6fb0", "#c0504d", "#e59a97", "#4f9d69")
        + ("#b8b8b8",),
        strict=True,
    )
)
_GIB = 1 << 30
_LEFT, _WIDTH, _BAR, _ROW, _TOP = 20, 760, 26, 62, 74
_LEGEND_STEP = 152


def ledger_picture() -> str:
    """The picture as SVG text."""
    height = _TOP + _ROW * len(_PLANS) + 10
    body = [*_legend(), *(part for index in range(len(_PLANS)) for part in _plan_row(index))]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + 2 * _LEFT}"'
            f' height="{height}" font-family="sans-serif" font-size="13">',
            '<rect width="100%" height="100%" fill="white"/>',
            *body,
            "</svg>",
            "",
        ]
    )


def _legend() -> Iterator[str]:
    for index, (name, color) in enumerate(_COLORS.items()):
        x, y = _LEFT + _LEGEND_STEP * (index % 5), 14 + 24 * (index // 5)
        yield f'<rect x="{x}" y="{y}" width="14" height="14" fill="{color}"/>'
        yield f'<text x="{x + 20}" y="{y + 12}">{escape(name)}</text>'


def _plan_row(index: int) -> Iterator[str]:
    title, model, product, gpus, tokens = _PLANS[index]
    ledger = _ledger(model, product, gpus, tokens)
    y = _TOP + _ROW * index
    budget, pool = ledger.budget_bytes / _GIB, ledger.kv_pool_bytes / _GIB
    text = f"{title}, requests of {tokens} tokens: {pool:.1f} of {budget:.1f} GiB a GPU are KV pool"
    yield f'<text x="{_LEFT}" y="{y}">{escape(text)}</text>'
    yield from _bar(ledger, y + 8)


def _bar(ledger: Ledger, y: int) -> Iterator[str]:
    held = 0
    for term in ledger.terms:
        start = _LEFT + _WIDTH * held / ledger.budget_bytes
        width = _WIDTH * term.bytes / ledger.budget_bytes
        held += term.bytes
        yield (
            f'<rect x="{start:.2f}" y="{y}" width="{width:.2f}" height="{_BAR}"'
            f' fill="{_COLORS[term.name]}"><title>{term.name}: {term.bytes / _GIB:.3f} GiB</title>'
            "</rect>"
        )


def _ledger(model: str, product: str, gpus: int, tokens: int) -> Ledger:
    group = NodeGroup(product, accelerator_from_labels(product, None), gpus, 1, nvlink=True)
    workload = Workload(max_model_len=tokens)
    plan = plan_serving(known_model(model).shape(), workload, [group]).chosen
    assert plan is not None, f"{model} fits {gpus} x {product}"
    return plan.stages[-1]
