"""The host's package settings reach the build, without what only means something on the host."""

import subprocess
from pathlib import Path

from e2e.images.build_environment import CA_BUNDLE, as_shell, build_settings, host_ca_bundle


def test_pip_config_becomes_variables() -> None:
    settings = build_settings({}, "global.timeout='60'\ninstall.no-binary='x'\n:env:.cert='/c'\n")
    assert settings["PIP_TIMEOUT"] == "60"
    assert settings["PIP_NO_BINARY"] == "x"


def test_environment_wins_over_pip_config() -> None:
    assert build_settings({"PIP_TIMEOUT": "5"}, "global.timeout='60'")["PIP_TIMEOUT"] == "5"


def test_an_index_given_to_pip_is_given_to_uv() -> None:
    settings = build_settings({"PIP_INDEX_URL": "https://index.example/simple"}, "")
    assert settings["UV_DEFAULT_INDEX"] == "https://index.example/simple"


def test_an_index_given_to_uv_stays() -> None:
    environ = {"PIP_INDEX_URL": "https://a.example", "UV_DEFAULT_INDEX": "https://b.example"}
    assert build_settings(environ, "")["UV_DEFAULT_INDEX"] == "https://b.example"


def test_folders_of_the_host_and_other_variables_stay_out() -> None:
    environ = {"UV_CACHE_DIR": "/c", "PIP_FIND_LINKS": "/wheels", "SECRET": "x", "PATH": "/bin"}
    assert set(build_settings(environ, "")) == {"SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE"}


def test_certificates_are_looked_for_where_the_build_mounts_them() -> None:
    settings = build_settings({"PIP_CERT": "/home/me/ca.pem"}, "global.cert='/etc/x.pem'")
    assert settings["PIP_CERT"] == settings["SSL_CERT_FILE"] == str(CA_BUNDLE)


def test_a_stated_bundle_that_is_missing_is_not_mounted(tmp_path: Path) -> None:
    assert host_ca_bundle({"SSL_CERT_FILE": str(tmp_path / "none")}) is None
    bundle = tmp_path / "ca.pem"
    bundle.write_text("")
    assert host_ca_bundle({"SSL_CERT_FILE": str(bundle)}) == bundle


def test_values_survive_the_shell() -> None:
    text = as_shell({"PIP_INDEX_URL": "https://u:p$'w@host/a b;c"})
    shell = f'{text}printf %s "$PIP_INDEX_URL"'
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True)
    assert done.stdout == "https://u:p$'w@host/a b;c"
