"""Tables of the memory model: its constants with their evidence, and the products it knows."""

from docs.generate.blocks import table
from pagefleet_memory.constant_record import Constant
from pagefleet_memory.constants import CONSTANTS
from pagefleet_memory.products import PRODUCTS, Product

_MIB = 1 << 20


def constant_table() -> str:
    """The constants that plans are made with; those of the scoring profile are left out."""
    rows = [
        (f"`{record.name}`", _amount(record), record.source, record.date)
        for record in CONSTANTS.values()
        if record.profile == "pagefleet"
    ]
    return table(("constant", "value", "source", "date"), rows)


def product_table() -> str:
    header = ("product", "MiB", "visible GiB", "GB/s", "bf16 TFLOPS", "SMs", "NVLink GB/s")
    return table(header, [_product(row) for row in PRODUCTS])


def _amount(record: Constant) -> str:
    if record.unit == "bytes" and record.value >= _MIB:
        return f"{record.value / _MIB:g} MiB" if record.value % _MIB == 0 else _rounded(record)
    return f"{record.value} {record.unit}"


def _rounded(record: Constant) -> str:
    return f"{record.value / _MIB:.1f} MiB"


def _product(row: Product) -> tuple[str, ...]:
    seen = f"{row.visible_gib:g}" if row.visible_gib is not None else "98 %"
    link = f"{row.nvlink_gbps} (pairs)" if row.nvlink_pairs else str(row.nvlink_gbps or "-")
    return (
        *(f"`{row.label}`", str(row.label_mib), seen),
        *(str(row.bandwidth_gbps), f"{row.bf16_tflops:g}", str(row.processors), link),
    )
