"""Whether every node can mount an image as a volume."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

_KUBELET = (1, 35)
_RUNTIMES = {"containerd": (2, 1), "cri-o": (1, 33)}


def supports_image_volumes(nodes: Sequence[Mapping[str, Any]]) -> bool:
    """On by default since Kubernetes 1.35, given a runtime that knows them; all nodes must."""
    return bool(nodes) and all(_node_supports(node) for node in nodes)


def _node_supports(node: Mapping[str, Any]) -> bool:
    info = (node.get("status") or {}).get("nodeInfo") or {}
    runtime, _, version = str(info.get("containerRuntimeVersion", "")).partition("://")
    needed = _RUNTIMES.get(runtime)
    return (
        needed is not None
        and _version(version) >= needed
        and _version(str(info.get("kubeletVersion", ""))) >= _KUBELET
    )


def _version(text: str) -> tuple[int, int]:
    match = re.match(r"v?(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)
