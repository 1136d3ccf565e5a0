"""Whether pagefleet's engine reads a model's quantized weights, in words for plans and refusals."""

from pagefleet_memory.engine_formats import READ
from pagefleet_memory.errors import ShapeError
from pagefleet_memory.model_shape import ModelShape


def unread_weights(shape: ModelShape) -> str | None:
    """Which weights of the model this version of the engine does not read; None: it reads all."""
    quantization = shape.quantization
    if quantization is None:
        return None
    if not quantization.engine_format:
        return quantization.obstacle or quantization.method
    packed = [each for kind in shape.layer_kinds for each in kind.weights.matrices if each.packing]
    if any(".experts." in each.name for each in packed):
        return f"{quantization.method} expert"
    return None


def require_readable_weights(shape: ModelShape) -> None:
    """Raise ShapeError where the engine does not read the model's quantized weights."""
    unread = unread_weights(shape)
    if unread:
        raise ShapeError(
            f"this version of the engine does not read {unread} weights",
            field="quantization_config.quant_method",
            value=shape.quantization.method if shape.quantization else None,
            hint=READ,
        )
