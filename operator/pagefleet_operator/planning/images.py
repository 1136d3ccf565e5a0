"""The container images that the operator puts into pods, and how they are pulled."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """`hf_endpoint` is the hub that pods download from; "" means the public one.

    `pull_secrets` name Secrets with registry credentials in the namespace of the pods.
    """

    engine: str
    operator: str
    pull_policy: str = "IfNotPresent"
    hf_endpoint: str = ""
    pull_secrets: tuple[str, ...] = ()

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self:
        return cls(
            engine=env.get("PAGEFLEET_IMAGE_ENGINE") or "pagefleet/engine:0.1.0",
            operator=env.get("PAGEFLEET_IMAGE_OPERATOR") or "pagefleet/operator:0.1.0",
            pull_policy=env.get("PAGEFLEET_IMAGE_PULL_POLICY") or "IfNotPresent",
            hf_endpoint=env.get("HF_ENDPOINT", ""),
            pull_secrets=tuple(env.get("PAGEFLEET_IMAGE_PULL_SECRETS", "").split()),
        )

    @property
    def pod_fields(self) -> dict[str, list[dict[str, str]]]:
        """What a pod's spec needs to pull from a private registry; nothing for a public one."""
        if not self.pull_secrets:
            return {}
        return {"imagePullSecrets": [{"name": name} for name in self.pull_secrets]}
