"""The source roots and tests/ stay plain folders, and the operator image never needs torch."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

IMPORT_ALL = """
import importlib, pkgutil, sys
for name in ("pagefleet_operator", "pagefleet_memory"):
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
sys.exit("torch was imported" if "torch" in sys.modules else 0)
"""


def test_roots_and_tests_hold_no_init_file() -> None:
    roots = [ROOT / root / "__init__.py" for root in ("operator", "engine", "kernels", "e2e")]
    found = [path for path in [*roots, *(ROOT / "tests").rglob("__init__.py")] if path.exists()]
    assert not found, f"remove {found}: such a file can hide the standard library's operator"


def test_operator_and_memory_import_without_torch() -> None:
    result = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
