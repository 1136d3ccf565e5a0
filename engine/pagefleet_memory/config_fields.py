"""Typed reads from a config.json mapping; a wrong type or an absurd size is a ShapeError."""

from collections.abc import Mapping, Sequence

from pagefleet_memory.errors import ShapeError

Config = Mapping[str, object]

_LARGEST = 1 << 40  # beyond any real size; keeps products finite and messages readable


def read_int(
    config: Config,
    *names: str,
    default: int | None = None,
    minimum: int = 1,
    maximum: int = _LARGEST,
) -> int:
    """The first present name as an integer of at least `minimum`, or the default."""
    for name in names:
        value = config.get(name)
        if value is not None:
            return _checked(name, value, minimum, maximum)
    if default is None:
        raise ShapeError("is missing", field=names[0], hint="the model's config.json must have it")
    return default


def read_optional_int(config: Config, *names: str) -> int | None:
    """The first present name as a positive integer; None where absent or null."""
    if all(config.get(name) is None for name in names):
        return None
    return read_int(config, *names)


def read_bool(config: Config, name: str, *, default: bool) -> bool:
    """A flag; null counts as absent."""
    value = config.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ShapeError(f"must be true or false, not {value!r}", field=name, value=value)
    return value


def read_str(config: Config, name: str, *, default: str) -> str:
    """A string; null counts as absent."""
    value = config.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise ShapeError(f"must be a string, not {value!r}", field=name, value=value)
    return value


def read_number(config: Config, name: str, *, default: float) -> float:
    """A positive finite number; null counts as absent."""
    value = config.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _LARGEST:
        raise ShapeError(f"must be a positive number, not {value!r}", field=name, value=value)
    return float(value)


def read_mapping(config: Config, name: str) -> Mapping[str, object] | None:
    """A nested object; None where absent or null."""
    value = config.get(name)
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ShapeError(f"must be an object, not {value!r}", field=name, value=value)
    return value


def read_int_list(config: Config, name: str) -> tuple[int, ...]:
    """A list of indices from zero; empty where absent."""
    return tuple(_checked(name, item, 0) for item in _read_list(config, name))


def read_str_list(config: Config, name: str) -> tuple[str, ...]:
    """A list of strings; empty where absent."""
    items = _read_list(config, name)
    if not all(isinstance(item, str) for item in items):
        raise ShapeError("must be a list of strings", field=name, value=items)
    return tuple(str(item) for item in items)


def _read_list(config: Config, name: str) -> Sequence[object]:
    value = config.get(name)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise ShapeError(f"must be a list, not {value!r}", field=name, value=value)
    return value


def _checked(name: str, value: object, minimum: int, maximum: int = _LARGEST) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ShapeError(f"must be an integer, not {value!r}", field=name, value=value)
    if not minimum <= value <= maximum:
        raise ShapeError(f"{value} is outside {minimum}..{maximum}", field=name, value=value)
    return value
