"""Byte counts as a user reads them."""

MIB = 1 << 20
GIB = 1 << 30


def format_bytes(count: int) -> str:
    """Bytes in MiB below one GiB, else in GiB."""
    if count >= GIB:
        return f"{count / GIB:.2f} GiB"
    return f"{count / MIB:.1f} MiB"
