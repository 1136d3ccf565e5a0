"""The host's pip and uv settings in a form that a RUN line can read: indexes, proxies, patience.

They may hold credentials: they go in as a build secret, so no layer and no history keeps them.
"""

import ast
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
CERTIFICATE_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE")
# They name folders and interpreters of the host.
OF_THE_HOST = {
    "PIP_CACHE_DIR",
    "PIP_CONFIG_FILE",
    "PIP_FIND_LINKS",
    "PIP_PREFIX",
    "PIP_REQUIRE_VIRTUALENV",
    "PIP_TARGET",
    "PIP_USER",
    "UV_CACHE_DIR",
    "UV_CONFIG_FILE",
    "UV_FIND_LINKS",
    "UV_PROJECT_ENVIRONMENT",
    "UV_PYTHON",
    "UV_PYTHON_INSTALL_DIR",
}


def host_ca_bundle(environ: Mapping[str, str]) -> Path | None:
    """The certificates that the host trusts, if it has them in one file."""
    stated = environ.get("SSL_CERT_FILE") or environ.get("PIP_CERT")
    bundle = Path(stated) if stated else CA_BUNDLE
    return bundle if bundle.is_file() else None


def build_settings(environ: Mapping[str, str], pip_config: str) -> dict[str, str]:
    """Variables for the build, from the environment and the output of `pip config list`."""
    found = _from_pip_config(pip_config)
    found |= {key: value for key, value in environ.items() if key.startswith(("PIP_", "UV_"))}
    settings = {key: value for key, value in found.items() if key not in OF_THE_HOST}
    # uv reads none of pip's settings; an index that was given to pip alone is meant for both.
    if "PIP_INDEX_URL" in settings and not {"UV_INDEX_URL", "UV_DEFAULT_INDEX"} & settings.keys():
        settings["UV_DEFAULT_INDEX"] = settings["PIP_INDEX_URL"]
    return settings | dict.fromkeys(CERTIFICATE_VARIABLES, str(CA_BUNDLE))


def _from_pip_config(text: str) -> dict[str, str]:
    """`global.index-url='https://host/'` becomes PIP_INDEX_URL."""
    settings = {}
    for line in text.splitlines():
        name, separator, value = line.partition("=")
        section, _, key = name.partition(".")
        if separator and section in ("global", "install"):
            settings[f"PIP_{key.upper().replace('-', '_')}"] = str(ast.literal_eval(value))
    return settings


def as_shell(settings: Mapping[str, str]) -> str:
    return "".join(f"{key}={shlex.quote(value)}\n" for key, value in sorted(settings.items()))


def pip_config_list() -> str:
    command = [sys.executable, "-m", "pip", "config", "list"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def uv_cache() -> Path:
    """The host's uv cache, which the builds share so that nothing is downloaded twice."""
    command = [str(Path(sys.executable).with_name("uv")), "cache", "dir"]
    folder = Path(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    )
    folder.mkdir(parents=True, exist_ok=True)
    return folder
