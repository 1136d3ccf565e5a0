"""The cluster's own network namespace, and the one cable that joins it to the host.

host 10.200.0.2 (pfh) ---- (pfn) bridge pf0 10.200.0.1   in namespace pf: every component
                                  |
                                cni0 10.244.0.1          pods 10.244.0.0/24
"""

import json
import os
from contextlib import suppress
from ipaddress import IPv4Network
from pathlib import Path

from e2e.cluster import layout
from e2e.cluster.commands import run, succeeds
from e2e.cluster.errors import CommandFailed, MissingPrerequisite

NETNS_FOLDER = Path("/run/netns")
NETNS = NETNS_FOLDER / layout.NAMESPACE
IN_NAMESPACE = ("nsenter", f"--net={NETNS}")
ROUTED_NETS = (layout.SERVICE_NET, layout.POD_NET)


def is_up() -> bool:
    """Whether the host reaches the node's address through our cable."""
    if not (NETNS.exists() and succeeds([*IN_NAMESPACE, "true"])):
        return False
    routes = {(route["dst"], route.get("dev")) for route in host_routes()}
    return all((net, layout.HOST_LINK) in routes for net in (layout.NODE_NET, *ROUTED_NETS))


def create(*, marker: Path) -> None:
    """Build the namespace from nothing; marker remembers that the mount for it is ours."""
    refuse_taken_addresses(host_routes())
    if not os.path.ismount(NETNS_FOLDER):
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
    run(["ip", "netns", "add", layout.NAMESPACE])
    _build_node_side()
    _join_to_host()
    _allow_forwarding()


def remove(*, marker: Path) -> None:
    """Take the cable and the namespace away, and the mount that `ip netns` made for it."""
    succeeds(["ip", "link", "del", layout.HOST_LINK])
    if NETNS.exists():
        succeeds(["ip", "netns", "del", layout.NAMESPACE])
        NETNS.unlink(missing_ok=True)
    if marker.exists() and NETNS_FOLDER.is_dir() and not any(NETNS_FOLDER.iterdir()):
        succeeds(["umount", str(NETNS_FOLDER)])
        with suppress(OSError):
            NETNS_FOLDER.rmdir()


def host_routes() -> list[dict[str, str]]:
    """The host's routing table."""
    try:
        routes: list[dict[str, str]] = json.loads(run(["ip", "-j", "-4", "route", "show"]))
    except CommandFailed:
        return []
    return routes


def refuse_taken_addresses(routes: list[dict[str, str]]) -> None:
    """Addresses that are somebody else's are a user's decision, not ours."""
    ours = [IPv4Network(net) for net in (layout.NODE_NET, *ROUTED_NETS)]
    for route in routes:
        taken = _network(route["dst"])
        if taken is None or route.get("dev") == layout.HOST_LINK:
            continue
        for net in ours:
            if net.overlaps(taken):
                raise MissingPrerequisite(
                    f"the cluster needs {net}, but {taken} is routed to {route.get('dev')}; "
                    f"take that network down first"
                )


def _network(destination: str) -> IPv4Network | None:
    """None for the default route, which overlaps everything and disturbs nothing."""
    return None if destination == "default" else IPv4Network(destination, strict=False)


def _build_node_side() -> None:
    inside = ["ip", "-n", layout.NAMESPACE]
    run([*inside, "link", "set", "lo", "up"])
    run([*inside, "link", "add", layout.BRIDGE, "type", "bridge"])
    run([*inside, "addr", "add", f"{layout.NODE_IP}/24", "dev", layout.BRIDGE])
    run([*inside, "link", "set", layout.BRIDGE, "up"])
    # There is no default route here; without this the node cannot reach its own Services.
    run([*inside, "route", "add", layout.SERVICE_NET, "dev", layout.BRIDGE])


def _join_to_host() -> None:
    inside = ["ip", "-n", layout.NAMESPACE]
    peer = ["peer", "name", layout.NODE_LINK, "netns", layout.NAMESPACE]
    run(["ip", "link", "add", layout.HOST_LINK, "type", "veth", *peer])
    run([*inside, "link", "set", layout.NODE_LINK, "master", layout.BRIDGE, "up"])
    run(["ip", "addr", "add", f"{layout.HOST_IP}/24", "dev", layout.HOST_LINK])
    run(["ip", "link", "set", layout.HOST_LINK, "up"])
    for net in ROUTED_NETS:
        run(["ip", "route", "add", net, "via", layout.NODE_IP])


def _allow_forwarding() -> None:
    script = "echo 1 > /proc/sys/net/ipv4/ip_forward"
    run([*IN_NAMESPACE, "sh", "-c", script])
