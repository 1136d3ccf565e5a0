"""How to reach the API server: in-cluster files or a kubeconfig, re-read when they change."""

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class CredentialsError(Exception):
    """No usable way to the API server; the message says what was looked for."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """One API server. A projected token is replaced on disk, so it is read at each use."""

    server: str
    ca_file: Path | None = None
    token_file: Path | None = None
    fixed_token: str | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    insecure: bool = False

    def token(self) -> str | None:
        if self.token_file is not None:
            return self.token_file.read_text().strip()
        return self.fixed_token

    def ssl_context(self) -> ssl.SSLContext | None:
        if not self.server.startswith("https"):
            return None
        context = ssl.create_default_context(cafile=str(self.ca_file) if self.ca_file else None)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate_file is not None:
            key = str(self.key_file) if self.key_file else None
            context.load_cert_chain(str(self.certificate_file), key)
        return context


def load_credentials(
    env: Mapping[str, str] = os.environ, *, service_account: Path = _SERVICE_ACCOUNT
) -> Credentials:
    """KUBECONFIG when it is set, else the pod's service account, else ~/.kube/config."""
    if env.get("KUBECONFIG"):
        return from_kubeconfig(Path(env["KUBECONFIG"]))
    if env.get("KUBERNETES_SERVICE_HOST") and (service_account / "token").exists():
        return _in_cluster(env, service_account)
    default = Path.home() / ".kube" / "config"
    if default.exists():
        return from_kubeconfig(default)
    raise CredentialsError(
        "no KUBECONFIG, no service account token in this pod, and no ~/.kube/config"
    )


def _in_cluster(env: Mapping[str, str], service_account: Path) -> Credentials:
    host, port = env["KUBERNETES_SERVICE_HOST"], env.get("KUBERNETES_SERVICE_PORT", "443")
    return Credentials(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ca_file=service_account / "ca.crt",
        token_file=service_account / "token",
    )


def from_kubeconfig(path: Path) -> Credentials:
    """The current context of one kubeconfig; client certificates or tokens, no exec plugins."""
    try:
        config: dict[str, Any] = yaml.safe_load(path.read_text())
        context = _named(config, "contexts", config["current-context"])["context"]
        cluster = _named(config, "clusters", context["cluster"])["cluster"]
        user = _named(config, "users", context["user"])["user"]
        server = str(cluster["server"]).rstrip("/")
    except (OSError, KeyError, TypeError, yaml.YAMLError) as error:
        raise CredentialsError(f"kubeconfig {path} is not usable: {error!r}") from error
    return Credentials(
        server=server,
        ca_file=_file(path, cluster, "certificate-authority"),
        token_file=Path(user["tokenFile"]) if "tokenFile" in user else None,
        fixed_token=user.get("token"),
        certificate_file=_file(path, user, "client-certificate"),
        key_file=_file(path, user, "client-key"),
        insecure=bool(cluster.get("insecure-skip-tls-verify", False)),
    )


def _named(config: Mapping[str, Any], section: str, name: str) -> dict[str, Any]:
    for entry in config[section]:
        if entry["name"] == name:
            found: dict[str, Any] = entry
            return found
    raise KeyError(f"{section} has no {name!r}")


def _file(config: Path, section: Mapping[str, Any], name: str) -> Path | None:
    """A path as it is, relative to the kubeconfig; inline data goes to a private file."""
    if name in section:
        return (config.parent / str(section[name])).resolve()
    data = section.get(f"{name}-data")
    if data is None:
        return None
    descriptor, target = tempfile.mkstemp(prefix="pagefleet-", suffix=".pem")
    with os.fdopen(descriptor, "wb") as file:
        file.write(base64.b64decode(data))
    return Path(target)
