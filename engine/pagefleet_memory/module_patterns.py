"""Lists of module names with wildcards, as quantization sections write them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import translate

from pagefleet_memory.errors import ShapeError

_WILDCARD = re.compile(r"[*?\[]")
# Wrappers put the text model at different depths; names are compared without.
_DEPTH = re.compile(r"(?:^|(?<=\.))(?:language_model|text_model|thinker)\.")
_SAME = (
    ("block_sparse_moe.", "mlp."),
    ("feed_forward.", "mlp."),
    ("shared_experts", "shared_expert"),
)


@dataclass(frozen=True, slots=True)
class ModulePatterns:
    """Names, wildcards and `re:` expressions; a name also covers the modules below it."""

    names: frozenset[str] = frozenset()
    expressions: tuple[re.Pattern[str], ...] = ()

    @staticmethod
    def read(patterns: Iterable[str]) -> "ModulePatterns":
        """Patterns of a config; raises ShapeError for an expression that does not compile."""
        names: set[str] = set()
        expressions: list[re.Pattern[str]] = []
        for pattern in patterns:
            if pattern.startswith("re:"):
                expressions.append(_compiled(pattern[3:]))
            elif _WILDCARD.search(pattern):
                expressions.append(_wildcard(_plain(pattern)))
            else:
                names.add(_plain(pattern))
        return ModulePatterns(frozenset(names), tuple(expressions))

    def __or__(self, other: "ModulePatterns") -> "ModulePatterns":
        return ModulePatterns(self.names | other.names, self.expressions + other.expressions)

    def match(self, path: str) -> bool:
        """Whether a module's path, or a part of it between dots, is named."""
        path = _plain(path)
        if self.names and not self.names.isdisjoint(_parts(path)):
            return True
        spellings = _spellings(path) if self.expressions else ()
        return any(each.match(path) for each in self.expressions for path in spellings)


def _parts(path: str) -> list[str]:
    """Every run of components of a path."""
    words = path.split(".")
    count = len(words)
    return [
        ".".join(words[start:end]) for start in range(count) for end in range(start + 1, count + 1)
    ]


def _spellings(path: str) -> tuple[str, ...]:
    """The path as other families and wrappers write it, for expressions over whole names."""
    spellings = [path, path.replace("model.", "model.language_model.", 1)]
    spellings += [path.replace(own, other) for other, own in _SAME if own in path]
    return tuple(spellings)


def _plain(path: str) -> str:
    path = _DEPTH.sub("", path)
    for other, own in _SAME:
        path = path.replace(other, own)
    return path


def _wildcard(pattern: str) -> re.Pattern[str]:
    """A shell pattern over a path or the parent of a path."""
    return _compiled(translate(pattern).removesuffix(r"\Z").removesuffix(r"\z") + r"(?:\..*)?\Z")


def _compiled(expression: str) -> re.Pattern[str]:
    try:
        return re.compile(expression)
    except re.error as error:
        raise ShapeError(
            f"{expression!r} is not a regular expression: {error}",
            field="quantization_config.ignore",
            value=expression,
        ) from error
