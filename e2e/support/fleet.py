"""One namespace's InferenceDeployments, driven and watched as a user would."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from e2e.stack import Stack
from e2e.support.deployments import on_cpu
from e2e.support.kubectl import Kubectl, Object, condition, is_true

INSTANCE = "app.kubernetes.io/instance"
STARTS_WITHIN = 180.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """Apply an InferenceDeployment, wait for what it should become, reach its model."""

    stack: Stack
    kubectl: Kubectl

    def apply_on_cpu(self, name: str, **changes: Any) -> None:
        self.kubectl.apply(on_cpu(name, self.stack.images.model, **changes))

    def get(self, name: str) -> Object:
        found = self.kubectl.get("infd", name)
        assert found is not None, f"InferenceDeployment {name} is gone"
        return found

    def wait_ready(self, name: str, *, timeout: float = STARTS_WITHIN) -> Object:
        """Ready for the generation that was applied last."""
        return self.kubectl.wait_for(
            "infd",
            name,
            lambda item: is_true(item, "Ready"),
            what=f"{name} to be Ready",
            timeout=timeout,
        )

    def wait_condition(
        self, name: str, kind: str, *, status: str, timeout: float = 60.0
    ) -> Mapping[str, Any]:
        """The condition once it has that status for the newest generation."""

        def holds(item: Object) -> bool:
            found = condition(item, kind)
            current = found.get("observedGeneration") == item["metadata"]["generation"]
            return current and found.get("status") == status

        what = f"{name} to have {kind}={status}"
        return condition(
            self.kubectl.wait_for("infd", name, holds, what=what, timeout=timeout), kind
        )

    def pods(self, name: str, *, component: str = "engine") -> list[Object]:
        """The replicas that exist and are not being deleted."""
        selector = f"{INSTANCE}={name},app.kubernetes.io/component={component}"
        found = self.kubectl.list("pods", selector=selector)
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def url(self, name: str) -> str:
        """Where the model's Service answers, seen from here."""
        return self.stack.service_url(self.kubectl.namespace, name)


def uid(item: Object) -> str:
    return str(item["metadata"]["uid"])


def engine_args(pod: Object) -> dict[str, str]:
    """The engine's command line as flag -> value; a flag without a value maps to ""."""
    container = next(c for c in pod["spec"]["containers"] if c["name"] == "engine")
    words = [str(word) for word in container.get("args", [])]
    following = [*words[1:], "--"]
    flags: dict[str, str] = {}
    for word, after in zip(words, following, strict=True):
        if not word.startswith("--"):
            continue
        flag, joined, value = word.partition("=")
        flags[flag] = value if joined else ("" if after.startswith("--") else after)
    return flags


def is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
