"""Call another program, and turn its failure into one readable error."""

import shlex
import subprocess
from collections.abc import Mapping, Sequence

from e2e.cluster.errors import CommandFailed


def run(
    argv: Sequence[str],
    *,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 300,
) -> str:
    """Run to the end, return standard output; raise CommandFailed with what it printed."""
    try:
        done = subprocess.run(
            argv,
            input=stdin,
            env=env,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError as error:
        raise CommandFailed(f"{argv[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(f"`{shlex.join(argv)}` took over {timeout:.0f} s") from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise CommandFailed(f"`{shlex.join(argv)}` failed ({done.returncode}): {said}")
    return done.stdout


def succeeds(argv: Sequence[str], *, timeout: float = 30) -> bool:
    """Whether the program ends without an error."""
    try:
        run(argv, timeout=timeout)
    except CommandFailed:
        return False
    return True
