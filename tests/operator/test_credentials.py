"""Where the API server is found: KUBECONFIG, the pod's service account, or a clear refusal."""

import base64
import datetime
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from kubernetes.aio.config import incluster_config

from pagefleet_operator.kube.credentials import CredentialsError, from_kubeconfig, load_credentials
from pagefleet_operator.process.handlers import connection
from pagefleet_operator.process.settings import Settings, SettingsError
from tests.operator.kubeconfigs import kubeconfig

PLUGIN = """#!/bin/sh
echo run >> "$RUNS"
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": '
cat "$ANSWER"
echo '}'
"""


class Plugin:
    """A script that answers what it is told, and counts how often it was asked."""

    def __init__(self, folder: Path) -> None:
        self._answer, self._runs = folder / "answer", folder / "runs"
        self._command = folder / "plugin"
        self._command.write_text(PLUGIN)
        self._command.chmod(0o700)
        self._runs.touch()

    @property
    def user(self) -> dict[str, object]:
        env = {"ANSWER": str(self._answer), "RUNS": str(self._runs)}
        return {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": str(self._command),
                "env": [{"name": name, "value": value} for name, value in env.items()],
            }
        }

    def answer(self, **status: str) -> None:
        self._answer.write_text(json.dumps(status))

    @property
    def runs(self) -> int:
        return len(self._runs.read_text().splitlines())


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


async def test_a_kubeconfig_with_a_token(tmp_path: Path) -> None:
    found = await from_kubeconfig(str(kubeconfig(tmp_path, user={"token": "t"})))
    assert found.server == "https://api:6443" and await found.authorization() == "Bearer t"
    told = await connection(found)
    assert (told.scheme, told.token) == ("Bearer", "t") and not told.insecure


async def test_paths_are_relative_to_the_kubeconfig_and_data_goes_to_a_private_file(
    tmp_path: Path,
) -> None:
    data = base64.b64encode(b"CERT").decode()
    key = tmp_path / "keys" / "me.key"
    key.parent.mkdir()
    key.write_text("KEY")
    user = {"token": "t", "client-certificate-data": data, "client-key": "keys/me.key"}
    found = await from_kubeconfig(
        str(kubeconfig(tmp_path, user=user, **{"insecure-skip-tls-verify": True}))
    )
    assert found.insecure and found.certificate_files is not None
    certificate, found_key = found.certificate_files
    assert found_key == str(key) and Path(certificate).read_bytes() == b"CERT"
    assert Path(certificate).stat().st_mode & 0o077 == 0


async def test_a_plugin_gives_the_token_and_runs_again_only_when_it_is_due(
    tmp_path: Path, plugin: Plugin
) -> None:
    clock = [0.0]
    plugin.answer(token="one")
    path = kubeconfig(tmp_path, user=plugin.user)
    found = await from_kubeconfig(str(path), clock=lambda: clock[0])
    assert [await found.authorization() for _ in range(3)] == ["Bearer one"] * 3
    assert plugin.runs == 1
    plugin.answer(token="two", expirationTimestamp="2999-01-01T00:00:00Z")
    clock[0] += 61
    assert await found.authorization() == "Bearer two" and plugin.runs == 2
    clock[0] += 61
    assert await found.authorization() == "Bearer two" and plugin.runs == 2


async def test_a_plugin_that_fails_leaves_no_way_in(tmp_path: Path, plugin: Plugin) -> None:
    path = kubeconfig(tmp_path, user=plugin.user)
    with pytest.raises(CredentialsError, match="neither a token nor a client certificate"):
        await from_kubeconfig(str(path))


async def test_in_a_pod_the_service_account_is_used_and_its_token_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [datetime.datetime(2026, 1, 1)]
    clock = SimpleNamespace(
        datetime=SimpleNamespace(now=lambda: now[0]), timedelta=datetime.timedelta
    )
    monkeypatch.setattr(incluster_config, "datetime", clock)
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(authority))
    env = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    token.write_text("one\n")
    authority.write_text("CA")
    found = await load_credentials(env)
    assert (found.server, found.ca_file) == ("https://[fd00::1]:443", str(authority))
    assert await found.authorization() == "bearer one"
    token.write_text("two")
    now[0] += datetime.timedelta(seconds=61)
    assert await found.authorization() == "bearer two"


async def test_a_token_that_cannot_be_renewed_says_so(tmp_path: Path) -> None:
    clock, token = [0.0], tmp_path / "token"
    token.write_text("one")
    path = kubeconfig(tmp_path, user={"tokenFile": "token"}, server="http://api")
    found = await from_kubeconfig(str(path), clock=lambda: clock[0])
    token.unlink()
    clock[0] += 61
    with pytest.raises(CredentialsError, match="not renewed"):
        await found.authorization()


async def test_a_broken_kubeconfig_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config"
    for text in ("contexts: []", "[]", "a: [", "current-context: x"):
        path.write_text(text)
        with pytest.raises(CredentialsError, match=str(path)):
            await from_kubeconfig(str(path))
    path.unlink()
    with pytest.raises(CredentialsError, match=str(path)):
        await from_kubeconfig(str(path))


async def test_nothing_to_go_by_says_what_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(CredentialsError, match="no KUBECONFIG"):
        await load_credentials({})
    with pytest.raises(CredentialsError, match="service account"):
        await load_credentials({"KUBERNETES_SERVICE_HOST": "10.0.0.1"})


def test_settings_have_defaults_and_name_a_bad_value() -> None:
    assert Settings.from_env({}).autoscale_seconds == 15.0
    assert Settings.from_env({"PAGEFLEET_AUTOSCALE_SECONDS": "3"}).autoscale_seconds == 3.0
    for text in ("soon", "0", "-1"):
        with pytest.raises(SettingsError, match="PAGEFLEET_RESYNC_SECONDS"):
            Settings.from_env({"PAGEFLEET_RESYNC_SECONDS": text})
