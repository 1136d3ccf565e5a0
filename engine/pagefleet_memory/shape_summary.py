"""The compact JSON form of a ModelShape, for an inspection pod's message and for status."""

from collections.abc import Mapping
from dataclasses import asdict, astuple, fields
from typing import Any

from pagefleet_memory.checkpoint import CheckpointSummary
from pagefleet_memory.config_fields import read_int, read_int_list, read_mapping
from pagefleet_memory.errors import ShapeError
from pagefleet_memory.layers import AttentionShape, LayerKind, LayerWeights, StateShape
from pagefleet_memory.matrices import Matrix
from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.packing import check_packing
from pagefleet_memory.quantization import Quantization
from pagefleet_memory.rope import RopeTable

_NESTED = frozenset(
    {"layer_kinds", "layer_pattern", "rope_tables", "quantization", "checkpoint", "remarks"}
)
_SCALARS = {field.name: field for field in fields(ModelShape) if field.name not in _NESTED}


def shape_to_summary(shape: ModelShape) -> dict[str, object]:
    """Plain JSON values; layers refer to matrices by number, their pattern is run-length encoded.

    `layer_pattern` is [kind, count, kind, count, ...]; a matrix is a list of its fields.
    """
    summary: dict[str, object] = {name: getattr(shape, name) for name in _SCALARS}
    summary["num_parameters"] = shape.num_parameters
    numbers: dict[Matrix, int] = {}
    summary["layer_kinds"] = [_kind_summary(kind, numbers) for kind in shape.layer_kinds]
    summary["matrices"] = [_matrix_summary(matrix) for matrix in numbers]
    summary["layer_pattern"] = _run_lengths(shape.layer_pattern)
    summary["rope_tables"] = [list(astuple(table)) for table in shape.rope_tables]
    summary["quantization"] = asdict(shape.quantization) if shape.quantization else None
    summary["checkpoint"] = _checkpoint_summary(shape.checkpoint)
    summary["remarks"] = list(shape.remarks)
    return summary


def shape_from_summary(summary: Mapping[str, object]) -> ModelShape:
    """The shape that `shape_to_summary` wrote; raises ShapeError where it is damaged."""
    if not isinstance(summary, Mapping):
        raise ShapeError("must be a JSON object", field="shape", value=summary)
    try:
        return _build(summary)
    except ShapeError:
        raise
    except (TypeError, KeyError, ValueError, IndexError) as error:
        raise ShapeError(f"is damaged: {error!r}", field="shape", value=None) from error


def _kind_summary(kind: LayerKind, numbers: dict[Matrix, int]) -> dict[str, object]:
    matrices = [numbers.setdefault(each, len(numbers)) for each in kind.weights.matrices]
    summary: dict[str, object] = {"attention": asdict(kind.attention), "matrices": matrices}
    if kind.state:
        summary["state"] = asdict(kind.state)
    return summary


def _matrix_summary(matrix: Matrix) -> list[object]:
    """The fields in order, without the trailing ones that keep their default."""
    values, defaults = list(astuple(matrix)), [0, 1, ""]
    while defaults and values[-1] == defaults[-1]:
        values.pop()
        defaults.pop()
    return values


def _build(summary: Mapping[str, object]) -> ModelShape:
    matrices = [_matrix(values) for values in _lists(summary, "matrices")]
    kinds = tuple(_layer_kind(kind, matrices) for kind in _objects(summary, "layer_kinds"))
    pattern = _expanded(read_int_list(summary, "layer_pattern"))
    values: dict[str, Any] = {name: _scalar(summary, name) for name in _SCALARS}
    if len(pattern) != values["num_layers"] or any(index >= len(kinds) for index in pattern):
        raise ShapeError("does not match the layers", field="layer_pattern", value=pattern)
    if values["head_packing"]:
        check_packing(values["head_packing"])
    quantization = read_mapping(summary, "quantization")
    remarks: Any = summary.get("remarks") or ()
    return ModelShape(
        **values,
        layer_kinds=kinds,
        layer_pattern=pattern,
        rope_tables=tuple(RopeTable(*_numbers(t)) for t in _lists(summary, "rope_tables")),
        quantization=Quantization(**_arguments(quantization)) if quantization else None,
        checkpoint=_checkpoint(read_mapping(summary, "checkpoint")),
        remarks=tuple(str(remark) for remark in remarks),
    )


def _scalar(summary: Mapping[str, object], name: str) -> object:
    value = summary[name]
    expected = _SCALARS[name].type
    if expected in (int, "int"):
        return read_int(summary, name, minimum=0)
    wanted = bool if expected in (bool, "bool") else str
    if not isinstance(value, wanted):
        raise ShapeError(f"must be a {wanted.__name__}", field=name, value=value)
    return value


def _objects(summary: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    items = summary[name]
    if not isinstance(items, list | tuple) or not all(isinstance(i, Mapping) for i in items):
        raise ShapeError("must be a list of objects", field=name, value=items)
    return list(items)


def _lists(summary: Mapping[str, object], name: str) -> list[list[object]]:
    items = summary[name]
    if not isinstance(items, list | tuple) or not all(isinstance(i, list | tuple) for i in items):
        raise ShapeError("must be a list of lists", field=name, value=items)
    return [list(item) for item in items]


def _numbers(values: list[object]) -> list[int]:
    return list(read_int_list({"rope_tables": values}, "rope_tables"))


def _matrix(values: list[object]) -> Matrix:
    name, rows, columns, split, *rest = values
    if not isinstance(name, str) or split not in ("rows", "columns", "whole"):
        raise ShapeError("is not a matrix", field="matrices", value=values)
    numbers = [value for value in rest if not isinstance(value, str)]
    sizes = read_int_list({"matrices": [rows, columns, *numbers]}, "matrices")
    packing = "".join(value for value in rest if isinstance(value, str))
    if packing:
        check_packing(packing)
    kv_rows, copies = (*sizes[2:], *(0, 1)[len(sizes) - 2 :])
    return Matrix(name, sizes[0], sizes[1], split, kv_rows, copies, packing)


def _layer_kind(kind: Mapping[str, object], matrices: list[Matrix]) -> LayerKind:
    attention = read_mapping(kind, "attention")
    numbers = read_int_list(kind, "matrices")
    if attention is None or not numbers:
        raise ShapeError("needs attention and matrices", field="layer_kinds", value=kind)
    state = read_mapping(kind, "state")
    return LayerKind(
        attention=AttentionShape(**_arguments(attention)),
        weights=LayerWeights(tuple(matrices[number] for number in numbers)),
        state=StateShape(**_arguments(state)) if state else None,
    )


def _arguments(section: Mapping[str, object]) -> dict[str, Any]:
    return {str(key): value for key, value in section.items()}


def _checkpoint_summary(checkpoint: CheckpointSummary | None) -> dict[str, object] | None:
    if checkpoint is None:
        return None
    return {
        "total_bytes": checkpoint.total_bytes,
        "bytes_by_dtype": dict(checkpoint.bytes_by_dtype),
        "num_parameters": checkpoint.num_parameters,
    }


def _checkpoint(section: Mapping[str, object] | None) -> CheckpointSummary | None:
    if section is None:
        return None
    by_dtype = read_mapping(section, "bytes_by_dtype") or {}
    return CheckpointSummary(
        total_bytes=read_int(section, "total_bytes"),
        bytes_by_dtype={name: read_int(by_dtype, name, minimum=0) for name in by_dtype},
        num_parameters=read_int(section, "num_parameters"),
    )


def _run_lengths(pattern: tuple[int, ...]) -> list[int]:
    runs: list[int] = []
    for kind in pattern:
        if runs and runs[-2] == kind:
            runs[-1] += 1
        else:
            runs += [kind, 1]
    return runs


def _expanded(runs: tuple[int, ...]) -> tuple[int, ...]:
    pairs = zip(runs[::2], runs[1::2], strict=True)
    return tuple(kind for kind, count in pairs for _ in range(min(count, 10_000)))
