"""Bytes of one K or V row in every KV mode."""

import pytest

from pagefleet_memory.dtypes import RowPart, int4_group, kv_row_bytes


@pytest.mark.parametrize(
    ("kv_dtype", "width", "key", "value"),
    [
        ("bfloat16", 128, 256, 256),
        ("float32", 128, 512, 512),
        ("fp8_e4m3", 128, 132, 132),
        ("int8", 64, 68, 68),
        ("int8k_int4v", 128, 132, 64 + 4 * 4),
        ("int4", 128, 64 + 4 * 4, 64 + 4 * 4),
        ("int4", 80, 40 + 4 * 5, 40 + 4 * 5),  # groups of 16
        ("int4", 96, 48 + 4 * 3, 48 + 4 * 3),
    ],
)
def test_row_bytes(kv_dtype: str, width: int, key: int, value: int) -> None:
    assert kv_row_bytes(width, kv_dtype, part="key") == key
    assert kv_row_bytes(width, kv_dtype, part="value") == value


@pytest.mark.parametrize("part", ["key", "value"])
def test_a_row_of_no_width_has_no_scale(part: RowPart) -> None:
    assert {kv_row_bytes(0, name, part=part) for name in ("int8", "int4", "fp8_e4m3")} == {0}


@pytest.mark.parametrize(("width", "group"), [(128, 32), (96, 32), (80, 16), (72, 8), (64, 32)])
def test_an_int4_group_divides_the_row(width: int, group: int) -> None:
    assert int4_group(width) == group
