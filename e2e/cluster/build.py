"""Build the cluster's programs from their Go modules, once per set of inputs."""

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster.commands import run
from e2e.cluster.errors import ClusterError, CommandFailed, MissingPrerequisite, NotReadyInTime
from e2e.cluster.go_modules import GoModule, build_key
from e2e.cluster.prerequisites import find_go, go_version, require_disk
from e2e.cluster.progress import Progress, duration

SCRATCH_PREFIX = ".building-"
FLAGS = ("-mod=readonly", "-trimpath", "-buildvcs=false")
BUILD_TIMEOUT_SECONDS = 3600
SIGNS_OF_NO_NETWORK = (
    "dial tcp",
    "i/o timeout",
    "no such host",
    "module lookup disabled",
    "403 Forbidden",
    "404 Not Found",
)


class Builder:
    """Turns modules into folders of programs under one cache folder."""

    def __init__(self, programs: Path, progress: Progress) -> None:
        self.programs = programs
        self.progress = progress
        self.go = find_go()
        self.go_version = go_version(self.go)

    def folder(self, module: GoModule) -> Path:
        """Where the programs of this module are once they are built."""
        return self.programs / build_key(module, go_version=self.go_version)

    def is_built(self, module: GoModule) -> bool:
        return self.folder(module).is_dir()

    def build(self, modules: Sequence[GoModule]) -> None:
        """Build what is not built yet, one compiler cache for all, removed afterwards."""
        if all(self.is_built(module) for module in modules):
            return
        self.programs.mkdir(parents=True, exist_ok=True)
        with self._lock(), self._scratch() as scratch:
            missing = [module for module in modules if not self.is_built(module)]
            require_disk(
                self.programs,
                needed=sum(module.needed_bytes for module in missing),
                purpose="building the cluster's programs",
            )
            for module in missing:
                title = f"Building {', '.join(module.programs)} from Go modules"
                with self.progress.step(title, usually=module.usual_seconds):
                    self._build_one(module, scratch)

    def _build_one(self, module: GoModule, scratch: Path) -> None:
        """The finished folder appears by one rename, so a broken build is never taken for one."""
        unfinished = scratch / module.name
        unfinished.mkdir()
        output = unfinished / module.output if module.output else f"{unfinished}/"
        stamps = " ".join(f"-X {stamp}" for stamp in module.stamps)
        flags = [*FLAGS, "-ldflags", f"-s -w {stamps}", "-o", str(output)]
        self._compile(module, [self.go, "build", *flags, *module.packages], scratch)
        self._copy_assets(module, unfinished)
        unfinished.rename(self.folder(module))

    def _compile(self, module: GoModule, argv: list[str], scratch: Path) -> None:
        log = scratch / f"{module.name}.log"
        environment = self._environment(scratch)
        with (
            log.open("wb") as out,
            subprocess.Popen(
                argv, cwd=module.folder, stdout=out, stderr=out, env=environment
            ) as compiler,
        ):
            try:
                self._watch(compiler, module)
            except BaseException:
                compiler.kill()
                raise
        if compiler.returncode != 0:
            raise explain_failure(module.name, log.read_text(errors="replace"))

    def _watch(self, compiler: subprocess.Popen[bytes], module: GoModule) -> None:
        begun = time.monotonic()
        while compiler.poll() is None:
            took = time.monotonic() - begun
            self.progress.heartbeat(f"{duration(took)} of about {duration(module.usual_seconds)}")
            if took > BUILD_TIMEOUT_SECONDS:
                raise NotReadyInTime(f"building {module.name} took over {duration(took)}")
            time.sleep(0.5)

    def _copy_assets(self, module: GoModule, target: Path) -> None:
        for asset in module.assets:
            source = run(
                ["env", f"--chdir={module.folder}", self.go, "list", "-m", "-f", "{{.Dir}}"]
                + [asset.module]
            ).strip()
            shutil.copytree(Path(source) / asset.folder, target / asset.name)
            # The module cache is read-only; what we keep must be removable.
            run(["chmod", "-R", "u+w", str(target / asset.name)])

    def _environment(self, scratch: Path) -> dict[str, str]:
        return {
            **os.environ,
            "CGO_ENABLED": "0",
            "GOFLAGS": "",
            "GOWORK": "off",
            "GOTOOLCHAIN": "local",
            "GOCACHE": str(scratch / "gocache"),
            "GOTMPDIR": str(scratch),
            # The compiler collects its own garbage less often: a fifth less time, more memory.
            "GOGC": "400",
        }

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """One build at a time; the second finds the first one's result."""
        with (self.programs / ".lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _scratch(self) -> Iterator[Path]:
        """Inside the cache, so that the rename stays on one disk; a killed build's is removed."""
        for stale in self.programs.glob(f"{SCRATCH_PREFIX}*"):
            shutil.rmtree(stale, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=self.programs))
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def explain_failure(name: str, log: str) -> ClusterError:
    """A network that does not give the modules is the user's to fix; anything else is ours."""
    for line in log.splitlines():
        if any(sign in line for sign in SIGNS_OF_NO_NETWORK):
            return MissingPrerequisite(
                f"the Go modules of {name} are out of reach ({line.strip()}); "
                f"check the network, or set GOPROXY to a module proxy that can be reached"
            )
    end = "\n".join(log.splitlines()[-20:])
    return CommandFailed(f"building {name} failed:\n{end}")
