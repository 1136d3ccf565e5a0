"""Where a Service answers, seen from this machine."""

import atexit
import subprocess
from functools import cache

from e2e.support.kubectl import Kubectl


def service_url(kubectl: Kubectl, name: str, *, is_local: bool) -> str:
    """Its cluster address on the local cluster; through the API server on a foreign one."""
    if not is_local:
        return f"{_proxy(kubectl)}/api/v1/namespaces/{kubectl.namespace}/services/{name}:http/proxy"
    service = kubectl.get("service", name)
    assert service is not None, f"there is no Service {name} in {kubectl.namespace}"
    port = service["spec"]["ports"][0]["port"]
    return f"http://{service['spec']['clusterIP']}:{port}"


@cache
def _proxy(kubectl: Kubectl) -> str:
    """`kubectl proxy` on a free port until this process ends."""
    command = [str(kubectl.program), "--kubeconfig", str(kubectl.kubeconfig), "proxy", "--port=0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    atexit.register(process.terminate)
    assert process.stdout is not None
    return "http://" + process.stdout.readline().rsplit(" ", 1)[-1].strip()
