"""kubectl as a few typed calls: every check looks at the cluster as a user would."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster.commands import run
from e2e.cluster.errors import CommandFailed
from e2e.cluster.waiting import wait_until

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl bound to one cluster and one namespace."""

    program: Path
    kubeconfig: Path
    namespace: str = "default"

    def inside(self, namespace: str) -> "Kubectl":
        return Kubectl(self.program, self.kubeconfig, namespace)

    def __call__(self, *args: str, stdin: str | None = None, timeout: float = 120) -> str:
        """Run and return standard output; CommandFailed carries what kubectl said."""
        base = [str(self.program), "--kubeconfig", str(self.kubeconfig), "-n", self.namespace]
        return run([*base, *args], stdin=stdin, timeout=timeout)

    def apply(self, manifest: Mapping[str, Any]) -> str:
        return self("apply", "-f", "-", stdin=json.dumps(manifest))

    def refusal(self, manifest: Mapping[str, Any]) -> str:
        """What the API server says against the object; fails if it accepts it."""
        try:
            self("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(manifest))
        except CommandFailed as error:
            return str(error)
        raise AssertionError(f"the API server accepted {manifest['metadata']['name']}")

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> str:
        return self("patch", kind, name, "--type=merge", "-p", json.dumps(change))

    def get(self, kind: str, name: str) -> Object | None:
        """The object, or None where there is none."""
        text = self("get", kind, name, "--ignore-not-found", "-o", "json")
        return dict(json.loads(text)) if text.strip() else None

    def list(self, kind: str, *, selector: str = "") -> list[Object]:
        args = ["get", kind, "-o", "json"]
        if selector:
            args += ["-l", selector]
        return list(json.loads(self(*args))["items"])

    def wait_for(
        self,
        kind: str,
        name: str,
        is_as_wanted: Callable[[Object], bool],
        *,
        what: str,
        timeout: float,
    ) -> Object:
        """Wait until the object exists and is as wanted; on a timeout show its last state."""
        seen: list[Object | None] = [None]

        def satisfied() -> bool:
            seen[0] = self.get(kind, name)
            return seen[0] is not None and is_as_wanted(seen[0])

        try:
            wait_until(satisfied, what=what, timeout=timeout)
        except Exception as error:
            raise AssertionError(f"{error}; last seen:\n{describe(seen[0])}") from error
        assert seen[0] is not None
        return seen[0]


def describe(item: Object | None) -> str:
    """The part of an object that says what state it is in."""
    return json.dumps((item or {}).get("status", item), indent=1)[-4000:]


def condition(item: Object, kind: str) -> Object:
    """The condition of that type, or an empty one."""
    found = [c for c in item.get("status", {}).get("conditions", []) if c["type"] == kind]
    return dict(found[0]) if found else {}


def is_true(item: Object, kind: str) -> bool:
    """Whether the condition holds for the generation that the user sees."""
    found = condition(item, kind)
    current = found.get("observedGeneration") == item["metadata"]["generation"]
    return current and found.get("status") == "True"
