"""The lock file covers every extra and names no index."""

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from e2e.images.dockerfile import ROOT

LOCK = [Requirement(line) for line in (ROOT / "requirements.lock").read_text().splitlines()]


def test_lock_names_no_index_and_no_address() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert not re.search(r"--|https?:|@ ", text)


def test_every_version_is_exact() -> None:
    for locked in LOCK:
        assert [part.operator for part in locked.specifier] == ["=="], str(locked)


def test_every_extra_is_met_by_the_lock() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    here = [locked for locked in LOCK if locked.marker is None or locked.marker.evaluate()]
    versions = {
        canonicalize_name(locked.name): next(iter(locked.specifier)).version for locked in here
    }
    for extra in project["optional-dependencies"].values():
        for wanted in map(Requirement, extra):
            assert versions[canonicalize_name(wanted.name)] in wanted.specifier, str(wanted)
