"""`make demo`: from nothing to a streamed answer, saying what happens and how long it takes."""

import os
import sys
import time

from e2e.cluster import ClusterError, use_cluster
from e2e.cluster.progress import Progress, duration
from e2e.demo.on_cluster import run_on_cluster
from e2e.demo.on_this_machine import run_on_this_machine

EXPECTED = """\
What will happen, with the time it takes the first time / when it was done before:
  1  build Kubernetes and the images, start the cluster    11-15 min / 30 s
  2  install the operator with Helm                           10-20 s / 5 s
  3  apply examples/smollm2-cpu.yaml, wait until it is Ready  20-60 s / 0 s
  4  ask a question and stream the answer                          5 s
"""


def main() -> int:
    print(EXPECTED)
    progress = Progress()
    begun = time.monotonic()
    try:
        use_cluster().check()
        run_on_cluster(progress)
    except ClusterError as error:
        if not _may_fall_back(error):
            return 1
        run_on_this_machine(progress)
    print(f"\nThe demo took {duration(time.monotonic() - begun)}.")
    return 0


def _may_fall_back(error: ClusterError) -> bool:
    """Without a cluster the same spec runs as one engine here; never silently, never in CI."""
    print(f"\nNo cluster can be had here: {error}", file=sys.stderr)
    if os.environ.get("CI") == "true":
        return False
    print("Running the same spec without Kubernetes: pagefleet run\n", file=sys.stderr)
    return True


if __name__ == "__main__":
    sys.exit(main())
