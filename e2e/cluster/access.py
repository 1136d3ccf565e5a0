"""How the rest of the project reaches a cluster: ours, or one that the user has stated."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import layout
from e2e.cluster.commands import run
from e2e.cluster.errors import CommandFailed, MissingPrerequisite
from e2e.cluster.layout import Layout

IMAGE_VARIABLES = {
    "operator": "PAGEFLEET_IMAGE_OPERATOR",
    "engine": "PAGEFLEET_IMAGE_ENGINE",
    "model": "PAGEFLEET_IMAGE_MODEL",
}


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """A running local cluster."""

    kubeconfig: Path
    registry: str
    bin_dir: Path
    kubectl: Path
    helm: Path

    @classmethod
    def of(cls, cluster: Layout) -> "ClusterInfo":
        return cls(
            kubeconfig=cluster.kubeconfig,
            registry=layout.REGISTRY,
            bin_dir=cluster.bin,
            kubectl=cluster.bin / "kubectl",
            helm=cluster.bin / "helm",
        )


@dataclass(frozen=True, slots=True)
class Images:
    """Where a cluster pulls the project's images from."""

    operator: str
    engine: str
    model: str


@dataclass(frozen=True, slots=True)
class ExternalCluster:
    """A cluster that we did not start and never stop."""

    kubeconfig: Path
    images: Images
    kubectl: Path
    helm: Path

    def check(self) -> None:
        """Raise if the stated cluster does not answer."""
        options = ("--kubeconfig", str(self.kubeconfig), "--request-timeout=10s")
        try:
            run([str(self.kubectl), *options, "get", "--raw", "/readyz"])
        except CommandFailed as error:
            raise MissingPrerequisite(
                f"the cluster of KUBECONFIG={self.kubeconfig} does not answer; "
                f"start it, or unset KUBECONFIG to use a local one: {error}"
            ) from error


def stated_cluster(environment: Mapping[str, str] = os.environ) -> ExternalCluster | None:
    """The cluster that KUBECONFIG states; None when it states none, or our own."""
    kubeconfig = environment.get("KUBECONFIG", "")
    if not kubeconfig or Path(kubeconfig) == Layout.default().kubeconfig:
        return None
    return ExternalCluster(
        kubeconfig=Path(kubeconfig),
        images=stated_images(environment),
        kubectl=_required_program("kubectl"),
        helm=_required_program("helm"),
    )


def stated_images(environment: Mapping[str, str]) -> Images:
    """The images that a foreign cluster can pull; it cannot see this machine's registry."""
    missing = [name for name in IMAGE_VARIABLES.values() if not environment.get(name)]
    if missing:
        raise MissingPrerequisite(
            f"KUBECONFIG is set, so the images must be named too: set {', '.join(missing)} "
            f"to images that cluster can pull, or unset KUBECONFIG to use a local cluster"
        )
    return Images(**{part: environment[name] for part, name in IMAGE_VARIABLES.items()})


def _required_program(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise MissingPrerequisite(f"KUBECONFIG is set, so {name} must be on the PATH; install it")
    return Path(found)
