"""The catalogue: config.json fields of popular models, so that plans can be made without files."""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

from pagefleet_memory.errors import ShapeError
from pagefleet_memory.model_shape import ModelShape


@dataclass(frozen=True, slots=True)
class CatalogueModel:
    """One model: its name on the hub, the fields that decide its memory, and who published them."""

    name: str
    source: str
    config: Mapping[str, object]

    def shape(self) -> ModelShape:
        """The shape, which says where it is from."""
        shape = ModelShape.from_config(self.config)
        remark = "sizes from the catalogue of this version, not from the model's files"
        return replace(shape, remarks=(*shape.remarks, remark))


@cache
def catalogue() -> tuple[CatalogueModel, ...]:
    """Every model, by name."""
    text = resources.files("pagefleet_memory").joinpath("catalogue.json").read_text()
    return tuple(
        CatalogueModel(name, entry["source"], entry["config"])
        for name, entry in json.loads(text).items()
    )


def find_model(name: str) -> CatalogueModel | None:
    """The model of this name, with or without its organization; upper and lower case are equal."""
    wanted = name.lower()
    whole = [model for model in catalogue() if model.name.lower() == wanted]
    part = [model for model in catalogue() if model.name.lower().partition("/")[2] == wanted]
    found = whole or part
    return found[0] if len(found) == 1 else None


def known_model(name: str) -> CatalogueModel:
    """As find_model; raises ShapeError with the names that come close."""
    found = find_model(name)
    if found is not None:
        return found
    names = {model.name.lower(): model.name for model in catalogue()}
    names |= {key.partition("/")[2]: value for key, value in names.items()}
    close = difflib.get_close_matches(name.lower(), names, n=3)
    hint = f"similar: {', '.join(dict.fromkeys(names[key] for key in close))}" if close else ""
    raise ShapeError(
        f"{name!r} is no folder, no config.json and not in the catalogue",
        field="model",
        value=name,
        hint=hint or f"the catalogue holds {len(catalogue())} models",
    )
