"""Ask and change the cluster through its own kubectl, as its administrator."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster.commands import run
from e2e.cluster.errors import CommandFailed


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl with one kubeconfig."""

    program: Path
    kubeconfig: Path

    def __call__(self, *arguments: str, stdin: str | None = None, timeout: float = 60) -> str:
        argv = [str(self.program), "--kubeconfig", str(self.kubeconfig), *arguments]
        return run(argv, stdin=stdin, timeout=timeout)

    def get(self, *arguments: str) -> dict[str, Any]:
        """One object, or a list object."""
        document: dict[str, Any] = json.loads(
            self("get", "--request-timeout=10s", *arguments, "-o", "json")
        )
        return document

    def apply(self, manifests: str) -> None:
        self("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifests)

    def has_condition(self, kind: str, name: str, condition: str, *, namespace: str = "") -> bool:
        """Whether the object says so of itself; no when it is not there yet."""
        where = ["-n", namespace] if namespace else []
        try:
            found = self.get(kind, name, *where)
        except CommandFailed:
            return False
        conditions = found.get("status", {}).get("conditions", [])
        return any(c["type"] == condition and c["status"] == "True" for c in conditions)
