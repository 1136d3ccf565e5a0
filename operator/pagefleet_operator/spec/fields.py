"""Field types shared by the parts of the spec: every one bounded, every one strict."""

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from pagefleet_operator.spec.quantity import DURATION_PATTERN, FRACTION_PATTERN, QUANTITY_PATTERN

INT32_MAX = 2_147_483_647


class SpecPart(BaseModel):
    """An immutable part of the spec: camelCase in JSON, snake_case in Python, nothing unknown."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )


def _whole_number_as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Count = Annotated[int, Field(strict=True, ge=1, le=INT32_MAX)]
CountOrZero = Annotated[int, Field(strict=True, ge=0, le=INT32_MAX)]
Replicas = Annotated[int, Field(strict=True, ge=0, le=1000)]
Percent = Annotated[int, Field(strict=True, ge=1, le=100)]
Text = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=512)]
Name = Annotated[
    str,
    StringConstraints(strict=True, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"),
]
Duration = Annotated[str, StringConstraints(strict=True, max_length=16, pattern=DURATION_PATTERN)]
Fraction = Annotated[str, StringConstraints(strict=True, max_length=6, pattern=FRACTION_PATTERN)]
DecimalText = Annotated[
    str,
    StringConstraints(strict=True, max_length=16, pattern=r"^[0-9]{1,9}(\.[0-9]{1,4})?$"),
]
Quantity = Annotated[
    str,
    BeforeValidator(_whole_number_as_text),
    StringConstraints(strict=True, max_length=24, pattern=QUANTITY_PATTERN),
    WithJsonSchema(
        {"x-kubernetes-int-or-string": True, "maxLength": 24, "pattern": QUANTITY_PATTERN}
    ),
]
LabelValue = Annotated[
    str,
    StringConstraints(
        strict=True, max_length=63, pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
    ),
]
