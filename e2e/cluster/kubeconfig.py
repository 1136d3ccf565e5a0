"""Kubeconfig files: how a client finds the API server and proves who it is."""

import base64
from pathlib import Path

import yaml

from e2e.cluster.layout import API_SERVER

CONTEXT = "pagefleet"


def render_kubeconfig(pki: Path, client: str) -> str:
    """A file that carries its certificates, so that it works from anywhere on the machine."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": CONTEXT,
        "clusters": [
            {
                "name": CONTEXT,
                "cluster": {
                    "server": API_SERVER,
                    "certificate-authority-data": _base64(pki / "ca.crt"),
                },
            }
        ],
        "users": [
            {
                "name": client,
                "user": {
                    "client-certificate-data": _base64(pki / f"{client}.crt"),
                    "client-key-data": _base64(pki / f"{client}.key"),
                },
            }
        ],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": client}}],
    }
    return yaml.safe_dump(document, sort_keys=False)


def write_kubeconfig(path: Path, *, pki: Path, client: str) -> None:
    """Written for its owner's eyes only: it holds a key."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(render_kubeconfig(pki, client))


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
