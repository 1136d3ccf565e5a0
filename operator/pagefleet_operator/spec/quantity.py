"""Kubernetes quantities and durations as numbers."""

import re
from decimal import Decimal

QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"
DURATION_PATTERN = r"^[0-9]+(ms|s|m|h)$"
FRACTION_PATTERN = r"^(0\.(0[1-9]|[1-9][0-9]?)[0-9]{0,2}|1(\.0{1,2})?)$"

_QUANTITY = re.compile(r"^([0-9]+(?:\.[0-9]+)?(?:[eE][0-9]+)?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$")
_FACTORS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_quantity(text: str) -> Decimal:
    """`4Gi` -> 4294967296, `500m` -> 0.5; ValueError for anything else."""
    match = _QUANTITY.match(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a quantity such as 500m, 2 or 4Gi")
    number, unit = match.groups()
    return Decimal(number) * _FACTORS[unit or ""]


def quantity_bytes(text: str) -> int:
    return int(parse_quantity(text))


def duration_seconds(text: str) -> float:
    """`500ms` -> 0.5, `2m` -> 120."""
    number, unit = re.fullmatch(r"([0-9]+)(ms|s|m|h)", text).groups()  # type: ignore[union-attr]
    return int(number) * _SECONDS[unit]
