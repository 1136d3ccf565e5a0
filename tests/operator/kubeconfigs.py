"""Kubeconfigs for the tests of credentials."""

from pathlib import Path
from typing import Any

import yaml


def kubeconfig(folder: Path, *, user: dict[str, Any], **cluster: Any) -> Path:
    path = folder / "config"
    content = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://api:6443/", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(content))
    return path
