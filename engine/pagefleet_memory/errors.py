"""Errors of the memory model.

MemoryModelError
├── ShapeError         the model's config.json or summary is malformed or not supported
├── AcceleratorError   the accelerator cannot be described or planned
└── LimitError         an engine limit, pin or workload figure is out of range
"""


class MemoryModelError(ValueError):
    """A value that the memory model cannot work with: names the field and what would work."""

    def __init__(self, message: str, *, field: str, value: object = None, hint: str = "") -> None:
        super().__init__(f"{field}: {message}{f'; {hint}' if hint else ''}")
        self.field = field
        self.value = value
        self.hint = hint


class ShapeError(MemoryModelError):
    """The model's description is malformed, incomplete or of an unsupported architecture."""


class AcceleratorError(MemoryModelError):
    """The accelerator is unknown, contradictory or shared in a way that cannot be planned."""


class LimitError(MemoryModelError):
    """An engine limit, a pinned value or a workload figure is out of range."""
