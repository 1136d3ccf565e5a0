"""The local cluster from the outside: up, down, and whether it is well."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.cluster import addons, cgroups, control_plane, dns, layout, network, node, registry
from e2e.cluster.access import ClusterInfo
from e2e.cluster.debian import install_packages
from e2e.cluster.kubectl import Kubectl
from e2e.cluster.layout import Layout
from e2e.cluster.leftovers import leftovers
from e2e.cluster.node_labels import label_node
from e2e.cluster.prerequisites import RUN_BYTES, find_go, require_disk, require_linux_and_root
from e2e.cluster.processes import Processes
from e2e.cluster.programs import build_programs, link_programs, wanted_modules
from e2e.cluster.progress import Progress
from e2e.cluster.teardown import netns_marker, tear_down

COMPONENTS = (registry.NAME, *control_plane.NAMES, *node.NAMES)


class LocalCluster:
    """One cluster per machine; every method may be called in any state."""

    def __init__(self, cluster: Layout | None = None, progress: Progress | None = None) -> None:
        self.layout = cluster or Layout.default()
        self.progress = progress or Progress()
        self.processes = Processes(self.layout)
        self.kubectl = Kubectl(program=self.info().kubectl, kubeconfig=self.info().kubeconfig)

    def info(self) -> ClusterInfo:
        """Where everything of this cluster is, whether it runs or not."""
        return ClusterInfo.of(self.layout)

    def check(self) -> None:
        """Raise MissingPrerequisite if this machine cannot have a cluster."""
        require_linux_and_root()
        if not self.is_healthy():
            find_go()
            require_disk(self.layout.cache, needed=RUN_BYTES, purpose="the cluster")

    def up(self, *, test_addons: bool = False, progress: Progress | None = None) -> ClusterInfo:
        """Return with a cluster that works; a healthy one is left as it is."""
        require_linux_and_root()
        self.progress = progress or self.progress
        if not self._is_complete(test_addons=test_addons):
            self._install()
            modules = wanted_modules(test_addons=test_addons)
            programs = build_programs(self.layout, self.progress, modules)
            with self._lock():
                self._start(programs, test_addons=test_addons)
        self.progress.say(f"The cluster is ready: export KUBECONFIG={self.layout.kubeconfig}")
        return self.info()

    def up_registry(self) -> str:
        """Only the network and the registry, so that images can come while programs build."""
        require_linux_and_root()
        self._install()
        with self._lock():
            self._start_registry()
        return layout.REGISTRY

    def down(self) -> None:
        """Leave nothing of the cluster but the caches."""
        require_linux_and_root()
        with self._lock(), self.progress.step("Stopping the cluster", usually=15):
            tear_down(self.layout, self.processes)

    def is_healthy(self) -> bool:
        """Every component runs, the node is Ready and names resolve."""
        return (
            all(self.processes.is_running(name) for name in COMPONENTS)
            and registry.is_up(self.processes)
            and control_plane.is_ready(self.layout.pki)
            and self.kubectl.has_condition("node", layout.NODE_NAME, "Ready")
            and dns.is_available(self.kubectl)
        )

    def dead_components(self) -> list[str]:
        """What was started and has ended by itself."""
        return [name for name in self.processes.names() if not self.processes.is_running(name)]

    def _is_complete(self, *, test_addons: bool) -> bool:
        if not self.is_healthy():
            return False
        return not test_addons or addons.are_up(self.processes, self.kubectl)

    def _install(self) -> None:
        require_disk(self.layout.cache, needed=RUN_BYTES, purpose="the cluster")
        install_packages(self.progress, lock=self.layout.cache / ".apt-lock")

    def _start(self, programs: list[tuple[str, str]], *, test_addons: bool) -> None:
        if not self.is_healthy():
            self._start_cluster(programs)
        if test_addons:
            link_programs(self.layout, programs)
            with self.progress.step("Starting KWOK and LeaderWorkerSet", usually=15):
                addons.start(self.layout, self.processes, self.kubectl)

    def _start_cluster(self, programs: list[tuple[str, str]]) -> None:
        self._start_registry()
        link_programs(self.layout, programs)
        with self.progress.step("Starting the control plane", usually=8):
            control_plane.start(self.layout, self.processes)
        with self.progress.step("Starting the node", usually=8):
            node.start(self.layout, self.processes, self.kubectl)
            label_node(self.kubectl)
        with self.progress.step("Starting DNS", usually=6):
            dns.start(self.layout, self.processes, self.kubectl)

    def _start_registry(self) -> None:
        """Also the place where the remains of an earlier run are found and removed."""
        if self.is_healthy() or (registry.is_up(self.processes) and not self._has_remains()):
            return
        for name in self.dead_components():
            self.progress.say(f"{name} had ended:\n{self.processes.log_tail(name)}")
        if leftovers(self.layout):
            with self.progress.step("Removing what an earlier run left"):
                tear_down(self.layout, self.processes)
        with self.progress.step("Starting the network and the image registry", usually=2):
            network.create(marker=netns_marker(self.layout))
            registry.start(self.layout, self.processes)

    def _has_remains(self) -> bool:
        """Whether anything beside the registry is left of a cluster that is not healthy."""
        return bool(set(self.processes.names()) - {registry.NAME} or cgroups.groups())

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """One change at a time; outside the run folder, which comes and goes."""
        with self.layout.run.with_suffix(".lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield
