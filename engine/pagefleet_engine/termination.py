"""The termination record: why the engine ended, in one line of JSON that Kubernetes keeps."""

import json
import logging
import os
from pathlib import Path

DEFAULT_LOG = Path("/dev/termination-log")
MAX_BYTES = 4096  # Kubernetes reads no more

log = logging.getLogger(__name__)


def write_record(path: str | None, *, reason: str, message: str) -> None:
    """Write the record to `path`, or to the container's own termination log where there is one."""
    target = Path(path) if path else DEFAULT_LOG
    if path is None and not os.access(target, os.W_OK):
        return
    try:
        target.write_text(format_record(reason=reason, message=message), encoding="utf-8")
    except OSError as error:
        log.warning("cannot write the termination record to %s: %s", target, error)


def format_record(*, reason: str, message: str) -> str:
    """The record as JSON, the message cut so that it stays within what Kubernetes reads."""
    record = json.dumps({"reason": reason, "message": message})
    excess = len(record) - MAX_BYTES
    if excess <= 0:
        return record
    # Escapes make up to 6 characters of one: cutting `excess` characters is always enough.
    return json.dumps({"reason": reason, "message": message[: -excess - 3] + "..."})
