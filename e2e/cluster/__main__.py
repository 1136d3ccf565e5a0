"""python -m e2e.cluster up|down|status|kubeconfig|env|logs|registry"""

import argparse
import sys
from collections.abc import Callable

from e2e.cluster.errors import ClusterError
from e2e.cluster.leftovers import leftovers
from e2e.cluster.local_cluster import LocalCluster
from e2e.cluster.status import describe


def main() -> int:
    """Run one command; a failure is one message and exit status 1."""
    arguments = _parser().parse_args()
    command: Callable[[LocalCluster, argparse.Namespace], int] = arguments.command
    try:
        return command(LocalCluster(), arguments)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; run the same command again to go on", file=sys.stderr)
        return 130


def up(cluster: LocalCluster, arguments: argparse.Namespace) -> int:
    print(cluster.up(test_addons=arguments.with_test_addons).kubeconfig)
    return 0


def registry(cluster: LocalCluster, _: argparse.Namespace) -> int:
    print(cluster.up_registry())
    return 0


def down(cluster: LocalCluster, _: argparse.Namespace) -> int:
    cluster.down()
    left = leftovers(cluster.layout)
    for line in left:
        print(f"left behind: {line}", file=sys.stderr)
    cluster.progress.say(f"Built programs and images stay in {cluster.layout.cache}")
    return 1 if left else 0


def status(cluster: LocalCluster, _: argparse.Namespace) -> int:
    healthy = cluster.is_healthy()
    print(describe(cluster, healthy=healthy))
    return 0 if healthy else 1


def kubeconfig(cluster: LocalCluster, _: argparse.Namespace) -> int:
    print(cluster.info().kubeconfig)
    return 0


def env(cluster: LocalCluster, _: argparse.Namespace) -> int:
    """For `eval "$(python -m e2e.cluster env)"`."""
    print(f"export KUBECONFIG={cluster.info().kubeconfig}")
    print(f'export PATH="{cluster.info().bin_dir}:$PATH"')
    return 0


def logs(cluster: LocalCluster, arguments: argparse.Namespace) -> int:
    names = [arguments.component] if arguments.component else cluster.processes.names()
    for name in names:
        print(f"==> {name}\n{cluster.processes.log_tail(name)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.cluster", description="A real Kubernetes cluster on this machine."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    start = commands.add_parser("up", help="build what is missing, start what does not run")
    start.add_argument(
        "--with-test-addons", action="store_true", help="also KWOK and LeaderWorkerSet"
    )
    start.set_defaults(command=up)
    show = commands.add_parser("logs", help="the end of the components' logs")
    show.add_argument("component", nargs="?", help="only this one")
    show.set_defaults(command=logs)
    for command, text in (
        (down, "stop everything and leave nothing but the caches"),
        (registry, "start only the network and the image registry"),
        (status, "what runs; exit status 1 unless the cluster is healthy"),
        (kubeconfig, "print the path of the kubeconfig"),
        (env, "print shell lines that set KUBECONFIG and PATH"),
    ):
        commands.add_parser(command.__name__, help=text).set_defaults(command=command)
    return parser


if __name__ == "__main__":
    sys.exit(main())
