"""The versions of Triton that kernels are checked on, beside the one of requirements.lock."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One version, with what its interpreter needs beside it."""

    triton: str
    numpy: str | None = None  # where it does not work with the locked one
    is_tested: bool = True  # in each test run

    @property
    def requirements(self) -> list[str]:
        return [f"triton=={self.triton}", *([f"numpy=={self.numpy}"] if self.numpy else [])]


RELEASES = (
    Release(triton="3.6.0", numpy="2.3.5"),  # range() of its numbers fails from NumPy 2.4 on
    Release(triton="3.7.1", is_tested=False),
    Release(triton="3.8.0"),
)
