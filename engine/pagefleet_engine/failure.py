"""Name a failure: one CamelCase word for the termination record, and what to tell the user."""

from pagefleet_engine.errors import ConfigError, RankError, StartupError


def name_failure(error: Exception) -> tuple[str, str]:
    """(reason, message)"""
    if isinstance(error, StartupError | RankError):
        return error.reason, str(error)
    if isinstance(error, ConfigError):
        return "BadArguments", str(error)
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__:
        return "OutOfMemory", str(error) or "no memory left"
    if "can't allocate memory" in str(error):  # torch's CPU allocator raises a bare RuntimeError
        return "OutOfMemory", str(error)
    return "EngineFailed", f"{type(error).__name__}: {error}"
