"""What keeps a version from being checked."""


class WindowError(Exception):
    """A version that cannot be had, or is not the one that would be checked."""
