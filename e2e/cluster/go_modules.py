"""Which programs are built from which Go module folder, and the key of a finished build."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from e2e.cluster.prerequisites import GIB

MODULES_FOLDER = Path(__file__).parent / "modules"
KUBERNETES_VERSION = "v1.36.3"
HELM_VERSION = "v4.2.3"
COREDNS_VERSION = "v1.12.4"
KWOK_VERSION = "v0.8.0"
LWS_VERSION = "v0.7.0"


@dataclass(frozen=True, slots=True)
class Asset:
    """A folder of a module's source that is needed at run time, such as a chart."""

    module: str
    folder: str
    name: str


@dataclass(frozen=True, slots=True)
class GoModule:
    """One module folder: its pins are its own, its programs are built together."""

    name: str
    programs: tuple[str, ...]
    packages: tuple[str, ...]
    # Given when one package is built under a name that is not its folder's.
    output: str = ""
    stamps: tuple[str, ...] = ()
    assets: tuple[Asset, ...] = ()
    usual_seconds: float = 30
    needed_bytes: int = GIB // 2

    @property
    def folder(self) -> Path:
        return MODULES_FOLDER / self.name


def kubernetes_stamps(version: str) -> tuple[str, ...]:
    """Without these `kubectl version` and a chart's kubeVersion check see no version at all."""
    major, minor, _ = version.removeprefix("v").split(".")
    values = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "0" * 40,
        "buildDate": "2026-01-01T00:00:00Z",
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return tuple(
        f"{package}.{name}={value}" for package in packages for name, value in values.items()
    )


CORE = GoModule(
    name="core",
    programs=(
        "coredns",
        "helm",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-proxy",
        "kube-scheduler",
        "kubectl",
        "kubelet",
    ),
    packages=("tool", "./coredns"),
    stamps=(
        *kubernetes_stamps(KUBERNETES_VERSION),
        f"helm.sh/helm/v4/internal/version.version={HELM_VERSION}",
    ),
    usual_seconds=600,
    needed_bytes=6 * GIB,
)
ETCD = GoModule(
    name="etcd",
    programs=("etcd",),
    packages=("go.etcd.io/etcd/server/v3",),
    output="etcd",
)
PAUSE = GoModule(
    name="pause", programs=("pause",), packages=(".",), output="pause", usual_seconds=5
)
KWOK = GoModule(
    name="kwok",
    programs=("kwok",),
    packages=("sigs.k8s.io/kwok/cmd/kwok",),
    stamps=(f"sigs.k8s.io/kwok/pkg/consts.Version={KWOK_VERSION}",),
    assets=(Asset("sigs.k8s.io/kwok", "kustomize/stage", "stages"),),
    usual_seconds=80,
    needed_bytes=3 * GIB,
)
LWS = GoModule(
    name="lws",
    programs=("manager",),
    packages=("sigs.k8s.io/lws/cmd",),
    output="manager",
    assets=(Asset("sigs.k8s.io/lws", "charts/lws", "chart"),),
    usual_seconds=90,
    needed_bytes=3 * GIB,
)

CLUSTER_MODULES = (CORE, ETCD, PAUSE)
ADDON_MODULES = (KWOK, LWS)


def build_key(module: GoModule, *, go_version: str) -> str:
    """Changes when anything changes that could change the built programs."""
    digest = hashlib.sha256(go_version.encode())
    recipe = {name: value for name, value in asdict(module).items() if name in RECIPE_FIELDS}
    digest.update(json.dumps(recipe, sort_keys=True).encode())
    for path in sorted(module.folder.rglob("*")):
        if path.is_file():
            digest.update(f"\0{path.relative_to(module.folder)}\0".encode())
            digest.update(path.read_bytes())
    return f"{module.name}-{digest.hexdigest()[:16]}"


RECIPE_FIELDS = ("programs", "packages", "output", "stamps", "assets")
