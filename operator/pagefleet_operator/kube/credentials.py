"""How to reach the API server: a kubeconfig or the pod's service account, kept fresh."""

import os
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

_REFRESH_SECONDS = 60.0
_TOKEN = "BearerToken"
_UNUSABLE = (ConfigException, OSError, yaml.YAMLError, AttributeError, TypeError, ValueError)


class CredentialsError(Exception):
    """No usable way to the API server; the message says what was looked for."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """One API server. Whoever loaded the configuration also gave it the hook that renews it."""

    configuration: Configuration

    @property
    def server(self) -> str:
        return str(self.configuration.host)

    @property
    def ca_file(self) -> str | None:
        return self.configuration.ssl_ca_cert or None

    @property
    def certificate_files(self) -> tuple[str, str | None] | None:
        """The client's certificate and its key."""
        found = self.configuration
        return (found.cert_file, found.key_file or None) if found.cert_file else None

    @property
    def insecure(self) -> bool:
        return not self.configuration.verify_ssl

    @property
    def proxy(self) -> str | None:
        return self.configuration.proxy or None

    async def authorization(self) -> str | None:
        """The header's value now: a token is renewed when it is due, so ask at each use."""
        try:
            value = await self.configuration.get_api_key_with_prefix(_TOKEN)
        except _UNUSABLE as error:
            raise CredentialsError(f"the token was not renewed: {error}") from error
        return value.strip() if value else None

    def ssl_context(self) -> ssl.SSLContext | None:
        if not self.server.startswith("https"):
            return None
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate_files is not None:
            context.load_cert_chain(*self.certificate_files)
        return context


async def load_credentials(env: Mapping[str, str] = os.environ) -> Credentials:
    """KUBECONFIG when it is set, else the pod's service account, else ~/.kube/config."""
    if env.get("KUBECONFIG"):
        return await from_kubeconfig(env["KUBECONFIG"])
    if env.get("KUBERNETES_SERVICE_HOST"):
        return _in_cluster()
    default = Path.home() / ".kube" / "config"
    if default.exists():
        return await from_kubeconfig(str(default))
    raise CredentialsError("no KUBECONFIG, not inside a pod, and no ~/.kube/config")


def _in_cluster() -> Credentials:
    configuration = Configuration()
    try:
        load_incluster_config(client_configuration=configuration)
    except _UNUSABLE as error:
        raise CredentialsError(f"the pod's service account is not usable: {error}") from error
    return Credentials(configuration)


async def from_kubeconfig(path: str, *, clock: Callable[[], float] = time.monotonic) -> Credentials:
    """The current context of a kubeconfig, or of several joined by ":", with exec plugins."""
    configuration = Configuration()
    try:
        loader = await load_kube_config(
            config_file=path, client_configuration=configuration, persist_config=False
        )
    except _UNUSABLE as error:
        raise CredentialsError(f"kubeconfig {path} is not usable: {error}") from error
    found = Credentials(configuration)
    known = await found.authorization() or found.certificate_files
    # A plugin that failed is only logged by the loader.
    if found.server.startswith("https") and not known:
        raise CredentialsError(f"kubeconfig {path} gives neither a token nor a client certificate")
    configuration.refresh_api_key_hook = _renewal(loader.load_and_set, clock)
    return found


def _renewal(
    load: Callable[[Configuration], Awaitable[None]], clock: Callable[[], float]
) -> Callable[[Configuration], Awaitable[None]]:
    """Read everything again once a minute; the loader runs a plugin only near its expiry."""
    due = clock() + _REFRESH_SECONDS

    async def renew(configuration: Configuration) -> None:
        nonlocal due
        if clock() >= due:
            due = clock() + _REFRESH_SECONDS
            await load(configuration)

    return renew
