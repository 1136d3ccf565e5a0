"""Have every program built, and put links to all of them in one folder."""

from collections.abc import Sequence

from e2e.cluster.build import Builder
from e2e.cluster.go_modules import ADDON_MODULES, CLUSTER_MODULES, GoModule
from e2e.cluster.layout import Layout
from e2e.cluster.progress import Progress


def wanted_modules(*, test_addons: bool) -> tuple[GoModule, ...]:
    """What the demo needs comes first."""
    return CLUSTER_MODULES + (ADDON_MODULES if test_addons else ())


def build_programs(
    cluster: Layout, progress: Progress, modules: Sequence[GoModule]
) -> list[tuple[str, str]]:
    """Build what is missing, and return (name, path) of every program."""
    builder = Builder(cluster.programs, progress)
    builder.build(modules)
    return [
        (program, str(builder.folder(module) / program))
        for module in modules
        for program in module.programs
    ]


def link_programs(cluster: Layout, programs: Sequence[tuple[str, str]]) -> None:
    """A folder that stays the same while builds come and go."""
    cluster.bin.mkdir(parents=True, exist_ok=True)
    for name, path in programs:
        link = cluster.bin / name
        link.unlink(missing_ok=True)
        link.symlink_to(path)
