"""ArgumentError: an argument that cannot work, with its name, its value and what would."""


class ArgumentError(ValueError):
    def __init__(self, field: str, value: object, hint: str) -> None:
        super().__init__(f"{field}={value!r}: {hint}")
        self.field = field
        self.value = value
        self.hint = hint
