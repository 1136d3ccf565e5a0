"""These tests stop the cluster, so they run after every other scenario."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.is_relative_to(HERE))
