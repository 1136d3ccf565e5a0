"""Where the API server is found: KUBECONFIG, the pod's service account, or a clear refusal."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from pagefleet_operator.kube.credentials import CredentialsError, from_kubeconfig, load_credentials
from pagefleet_operator.process.settings import Settings, SettingsError


def kubeconfig(tmp_path: Path, *, user: dict[str, Any], **cluster: Any) -> Path:
    path = tmp_path / "config"
    content = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://api:6443/", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_kubeconfig_with_a_token(tmp_path: Path) -> None:
    found = from_kubeconfig(kubeconfig(tmp_path, user={"token": "t"}))
    assert found.server == "https://api:6443" and found.token() == "t"


def test_paths_are_relative_to_the_kubeconfig_and_data_goes_to_a_private_file(
    tmp_path: Path,
) -> None:
    data = base64.b64encode(b"CERT").decode()
    user = {"client-certificate-data": data, "client-key": "keys/me.key"}
    found = from_kubeconfig(kubeconfig(tmp_path, user=user))
    assert found.key_file == tmp_path / "keys" / "me.key"
    assert found.certificate_file is not None
    assert found.certificate_file.read_bytes() == b"CERT"
    assert found.certificate_file.stat().st_mode & 0o077 == 0
    found.certificate_file.unlink()


def test_in_a_pod_the_service_account_is_used_and_read_each_time(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\n")
    env = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    found = load_credentials(env, service_account=tmp_path)
    assert found.server == "https://[fd00::1]:443" and found.token() == "one"
    (tmp_path / "token").write_text("two")
    assert found.token() == "two"


def test_a_broken_kubeconfig_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("contexts: []")
    with pytest.raises(CredentialsError, match=str(path)):
        from_kubeconfig(path)


def test_nothing_to_go_by_says_what_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(CredentialsError, match="no KUBECONFIG"):
        load_credentials({}, service_account=tmp_path)


def test_settings_have_defaults_and_name_a_bad_value() -> None:
    assert Settings.from_env({}).autoscale_seconds == 15.0
    assert Settings.from_env({"PAGEFLEET_AUTOSCALE_SECONDS": "3"}).autoscale_seconds == 3.0
    for text in ("soon", "0", "-1"):
        with pytest.raises(SettingsError, match="PAGEFLEET_RESYNC_SECONDS"):
            Settings.from_env({"PAGEFLEET_RESYNC_SECONDS": text})
