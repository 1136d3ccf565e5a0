"""Short identities of values."""

import hashlib
import json
from typing import Any


def short_hash(value: Any) -> str:
    """8 hex digits of what the value is as JSON, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:8]
