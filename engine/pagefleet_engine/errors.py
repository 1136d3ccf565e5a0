"""Everything the engine raises on purpose.

EngineError
├── ConfigError            a flag or setting that cannot work (exit code 2, reason BadArguments)
├── RequestError           one request that cannot be served; no other request is touched (HTTP 400)
│   ├── ParameterError     a sampling parameter out of range
│   ├── ContextLengthError prompt and max_tokens exceed max_model_len
│   └── CapacityError      the prompt can never fit the KV cache
├── RankError              a process that holds a part of the model has ended; `.reason` as below
└── StartupError           the engine cannot start (exit code 1); `.reason` goes to the record
    ├── DoesNotFitError    not even one request of max_model_len fits
    ├── OutOfMemoryError   the memory that was planned could not be had
    └── ModelLoadError     config or weights cannot be read, or the architecture is unsupported
"""


class EngineError(Exception):
    """Root of the tree."""


class ConfigError(EngineError):
    """A setting that cannot work, with what would."""

    def __init__(self, field: str, value: object, hint: str) -> None:
        super().__init__(field, value, hint)
        self.field = field
        self.value = value
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.field}={self.value!r}: {self.hint}"


class RequestError(EngineError):
    """One request that cannot be served; `code` is the OpenAI error code, if there is one."""

    code: str | None = None

    def __init__(self, field: str, value: object, hint: str) -> None:
        super().__init__(field, value, hint)
        self.field = field
        self.value = value
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.field}={self.value!r}: {self.hint}"


class ParameterError(RequestError):
    """A sampling parameter is out of range."""


class ContextLengthError(RequestError):
    """Prompt and requested output are longer than the model's context."""

    code = "context_length_exceeded"


class CapacityError(RequestError):
    """The prompt alone is larger than the whole KV cache."""

    code = "context_length_exceeded"


class RankError(EngineError):
    """A rank failed or died: without its part of the model no step can be computed."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class StartupError(EngineError):
    """The engine cannot start; `reason` is one CamelCase word for the termination record."""

    reason = "StartFailed"


class DoesNotFitError(StartupError):
    """Not even one request of max_model_len fits the memory."""

    reason = "DoesNotFit"


class OutOfMemoryError(StartupError):
    """The memory that was planned could not be had."""

    reason = "OutOfMemory"


class ModelLoadError(StartupError):
    """The model folder cannot be read or its architecture is unsupported."""

    reason = "ModelLoadFailed"
