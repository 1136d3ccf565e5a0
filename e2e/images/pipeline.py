"""From the working tree to images in a registry, doing only what their names say is missing."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from e2e.cache import cache_root, locked
from e2e.cluster.access import Images
from e2e.cluster.debian import find_program, install_missing
from e2e.cluster.prerequisites import GIB, require_disk, require_linux_and_root
from e2e.cluster.progress import Progress
from e2e.images import build_environment
from e2e.images.base import build_base
from e2e.images.buildah import Buildah
from e2e.images.recipe import Recipe, read_recipe
from e2e.images.registry import Registry
from e2e.model import model_folder

DEBIAN_PACKAGES = ("buildah", "debootstrap")
# The engine's dependencies unpacked, their archive while it is committed, and the uv cache.
DISK_FOR_ENGINE = 18 * GIB
REPOSITORIES = {
    "operator": "pagefleet/operator",
    "engine": "pagefleet/engine",
    "model": "pagefleet/model-smollm2",
}


def build_and_push(registry: str, progress: Progress | None = None) -> Images:
    """Build what is missing, send what the registry lacks, return the names to pull by."""
    progress = progress or Progress()
    model = model_folder()
    with _storage(progress) as buildah:
        recipe = read_recipe(model)
        _build_missing(buildah, recipe, model, progress)
        _push_missing(buildah, recipe, Registry(registry), progress)
    return image_names(registry, recipe)


def build_all(progress: Progress | None = None) -> dict[str, int]:
    """Build what is missing; every finished image with its size in bytes."""
    progress = progress or Progress()
    model = model_folder()
    with _storage(progress) as buildah:
        recipe = read_recipe(model)
        _build_missing(buildah, recipe, model, progress)
        return {name: buildah.size(name) for name in _local_names(recipe).values()}


def image_names(registry: str, recipe: Recipe) -> Images:
    """The names under which a cluster pulls the images of this recipe."""
    return Images(
        operator=f"{registry}/{REPOSITORIES['operator']}:{recipe.operator}",
        engine=f"{registry}/{REPOSITORIES['engine']}:{recipe.engine}",
        model=f"{registry}/{REPOSITORIES['model']}:{recipe.model}",
    )


def _local_names(recipe: Recipe) -> dict[str, str]:
    """Each target of the Dockerfile, and the name of its image in our own storage."""
    return {
        "base": _local("base", recipe.base),
        "tools": _local("tools", recipe.tools),
        "operator-deps": _local("operator-deps", recipe.operator_deps),
        "operator": _local("operator", recipe.operator),
        "model-smollm2": _local("model-smollm2", recipe.model),
        "engine-deps": _local("engine-deps", recipe.engine_deps),
        "engine": _local("engine", recipe.engine),
    }


def _local(name: str, tag: str) -> str:
    return f"localhost/pagefleet/{name}:{tag}"


@contextmanager
def _storage(progress: Progress) -> Iterator[Buildah]:
    """Our buildah storage, for one process at a time and free of half-finished work."""
    require_linux_and_root()
    install_missing(_missing_packages, progress, lock=cache_root() / ".apt-lock")
    buildah = Buildah(cache_root() / "images")
    with locked(buildah.folder):
        shutil.rmtree(buildah.scratch, ignore_errors=True)
        buildah.scratch.mkdir()
        buildah.clean()
        try:
            yield buildah
        finally:
            buildah.unmount()


def _missing_packages() -> list[str]:
    return [name for name in DEBIAN_PACKAGES if find_program(name) is None]


def _build_missing(buildah: Buildah, recipe: Recipe, model: Path, progress: Progress) -> None:
    names = _local_names(recipe)
    args = {
        "BASE_IMAGE": names["base"],
        "TOOLS": names["tools"],
        "OPERATOR_DEPS": names["operator-deps"],
        "ENGINE_DEPS": names["engine-deps"],
    }

    def build(target: str, *options: str, usually: float, own: str = "") -> None:
        """`own` is the argument that this target's result is passed by, and so not yet."""
        if not buildah.exists(names[target]):
            known = {key: value for key, value in args.items() if key != own}
            with progress.step(f"Building the {target} image", usually=usually):
                buildah.build(target, names[target], *options, args=known)

    if not buildah.exists(names["base"]):
        with progress.step("Building the base image from Debian packages", usually=45):
            build_base(buildah, names["base"], buildah.scratch)
    online = _online_options(buildah)
    build("tools", *online, usually=10, own="TOOLS")
    build("operator-deps", *online, usually=25, own="OPERATOR_DEPS")
    build("operator", usually=4)
    build("model-smollm2", f"--build-context=smollm2={model}", usually=5)
    if not buildah.exists(names["engine-deps"]):
        require_disk(buildah.folder, needed=DISK_FOR_ENGINE, purpose="building the engine image")
    build("engine-deps", *online, usually=150, own="ENGINE_DEPS")
    build("engine", usually=4)
    _remove_outdated(buildah, set(names.values()))


def _online_options(buildah: Buildah) -> Sequence[str]:
    """For targets that install packages: the host's settings, certificates and uv cache."""
    secret = buildah.scratch / "build-env"
    settings = build_environment.build_settings(os.environ, build_environment.pip_config_list())
    secret.touch(mode=0o600)
    secret.write_text(build_environment.as_shell(settings))
    options = [f"--secret=id=build-env,src={secret}"]
    options.append(f"--volume={build_environment.uv_cache()}:/root/.cache/uv")
    if bundle := build_environment.host_ca_bundle(os.environ):
        options.append(f"--volume={bundle}:{build_environment.CA_BUNDLE}:ro")
    return options


def _remove_outdated(buildah: Buildah, wanted: set[str]) -> None:
    """Images of earlier inputs: an engine's dependencies alone are 5 GB."""
    for name in set(buildah.names()) - wanted:
        buildah.remove(name)


def _push_missing(buildah: Buildah, recipe: Recipe, registry: Registry, progress: Progress) -> None:
    """Each image under its content hash, and under `dev` as the latest one."""
    local = _local_names(recipe)
    tags = (
        ("operator", local["operator"], recipe.operator, 10),
        ("model", local["model-smollm2"], recipe.model, 10),
        ("engine", local["engine"], recipe.engine, 60),
    )
    for name, image, tag, usually in tags:
        repository = REPOSITORIES[name]
        if not registry.has(repository, tag):
            with progress.step(f"Pushing the {name} image", usually=usually):
                buildah.push(image, f"{registry.address}/{repository}:{tag}")
        registry.alias(repository, tag, second="dev")
