"""The operator's exceptions.

PagefleetError
├── SpecError         a field of the custom resource is wrong (the user's to mend)
└── InspectionError   the model's headers could not be read (reason is a condition reason)
"""


class PagefleetError(Exception):
    """Anything this package raises on purpose."""


class SpecError(PagefleetError, ValueError):
    """A field, the value it has, and what would work instead."""

    def __init__(self, field: str, value: object, hint: str) -> None:
        super().__init__(f"{field}: {_shown(value)} {hint}")
        self.field = field
        self.value = value
        self.hint = hint


class InspectionError(PagefleetError):
    """A model that cannot be inspected; `reason` is CamelCase and lands in a condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
