"""The demo on a real cluster: apply, wait, show the plan, chat."""

import time
from typing import Any

import yaml
from rich.console import Console

from e2e.cluster.errors import NotReadyInTime
from e2e.cluster.progress import Progress, duration
from e2e.demo.answer import show_answer, show_metrics
from e2e.stack import OPERATOR_NAMESPACE, ROOT, Stack, ensure_stack
from e2e.support.kubectl import Kubectl, Object, is_true
from pagefleet_operator.planning.plan_table import plan_table

EXAMPLE = ROOT / "examples" / "smollm2-cpu.yaml"
READY_WITHIN = 300.0


def run_on_cluster(progress: Progress) -> None:
    console = Console()
    stack = ensure_stack(progress, test_addons=False)
    with progress.step("helm upgrade --install pagefleet charts/pagefleet", usually=15):
        stack.install()
    manifest = _example(stack)
    kubectl = stack.kubectl.inside("default")
    name = manifest["metadata"]["name"]
    with progress.step(f"kubectl apply -f {EXAMPLE.relative_to(ROOT)}", usually=1):
        kubectl.apply(manifest)
    item = _wait_ready(kubectl, name, progress)
    console.print(plan_table(item["status"]["plan"], title=f"\nThe plan of {name} (status.plan)"))
    url = stack.service_url("default", name)
    show_answer(console, url, manifest["spec"]["model"].get("name", name))
    show_metrics(console, url)
    _say_what_next(console, kubectl, name, url)


def _example(stack: Stack) -> dict[str, Any]:
    """The example, with the model image under the name this cluster can pull."""
    manifest = dict(yaml.safe_load(EXAMPLE.read_text()))
    manifest["spec"]["model"]["uri"] = f"oci://{stack.images.model}"
    return manifest


def _wait_ready(kubectl: Kubectl, name: str, progress: Progress) -> Object:
    """Wait for Ready, saying each change of the conditions."""
    said = ""
    begun = time.monotonic()
    with progress.step(f"wait until {name} is Ready", usually=30):
        while True:
            item = kubectl.get("infd", name) or {"metadata": {"generation": 0}}
            if is_true(item, "Ready"):
                return item
            now = _state(item)
            if now != said:
                progress.say(f"  {duration(time.monotonic() - begun)}: {now}")
                said = now
            if time.monotonic() - begun > READY_WITHIN:
                raise NotReadyInTime(f"{name} is not Ready after {READY_WITHIN:.0f} s: {now}")
            time.sleep(1)


def _state(item: Object) -> str:
    conditions = item.get("status", {}).get("conditions", [])
    if not conditions:
        return "the operator has not seen it yet"
    parts = [f"{c['type']}={c['status']} ({c['reason']})" for c in conditions]
    return ", ".join(parts)


def _say_what_next(console: Console, kubectl: Kubectl, name: str, url: str) -> None:
    base = f"{kubectl.program} --kubeconfig {kubectl.kubeconfig}"
    console.print("\n[bold]Look further[/bold]")
    for line in (
        f"export KUBECONFIG={kubectl.kubeconfig} PATH={kubectl.program.parent}:$PATH",
        f"kubectl get infd {name} -o yaml",
        "kubectl explain infd.spec.sizing",
        f"kubectl -n {OPERATOR_NAMESPACE} logs deployment/pagefleet-operator",
        f"curl {url}/ledger",
        f"kubectl edit infd {name}    # try a small spec.hardware.memory",
    ):
        console.out(f"  {line}", highlight=False)
    console.print("[bold]Take it down[/bold]")
    console.out(f"  {base} delete infd {name}", highlight=False)
    console.out("  make cluster-down", highlight=False)
