"""Short names of products, as people type them: H100-80GB, L4, A100."""

from pagefleet_memory.errors import AcceleratorError
from pagefleet_memory.products import PRODUCTS, Product, find_product


def resolve_product(name: str) -> str:
    """The product label that a name stands for: a label as it is, else the one row it fits.

    A short name fits where its words stand in the label in the same order. Rows of equal memory
    differ in their links only, so the first of the table stands for them: A100-80GB is the SXM
    card. Raises AcceleratorError with the candidates where memory differs, or where nothing fits.
    """
    if find_product(name) is not None:
        return name
    found = [row for row in PRODUCTS if _fits(name, row)]
    if len({row.label_mib for row in found}) == 1:
        return found[0].label
    candidates = ", ".join(row.label for row in found or PRODUCTS)
    raise AcceleratorError(
        f"{name!r} fits {len(found)} products" if found else f"{name!r} is no known product",
        field="product",
        value=name,
        hint=f"use one of {candidates}",
    )


def _fits(name: str, row: Product) -> bool:
    """Every word of the name stands in the label, in this order."""
    words = iter(row.label.lower().split("-"))
    return all(word in words for word in name.lower().split("-"))
