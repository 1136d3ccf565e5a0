"""`pagefleet models`: the shapes that are at hand without any file."""

from typing import Any

import click
from rich.table import Table

from pagefleet_memory.catalogue import CatalogueModel, catalogue
from pagefleet_operator.commands.output import output_option, print_data, print_table


@click.command()
@output_option
def models(output: str) -> None:
    """List the catalogue: models that plan and capacity know by name."""
    if output != "table":
        print_data([_row(model) for model in catalogue()], output)
        return
    table = Table()
    table.add_column("model")
    for heading in ("parameters", "positions", "KV bytes a token"):
        table.add_column(heading, justify="right")
    table.add_column("engine runs it")
    for model in catalogue():
        row = _row(model)
        table.add_row(
            model.name,
            f"{row['parameters'] / 1e9:.2f} B",
            str(row["maxPositionEmbeddings"]),
            str(row["kvBytesPerToken"]),
            "no" if "unsupported" in row else "yes",
        )
    print_table(table)


def _row(model: CatalogueModel) -> dict[str, Any]:
    shape = model.shape()
    reason = shape.unsupported_by_engine
    return {
        "name": model.name,
        "parameters": shape.num_parameters,
        "maxPositionEmbeddings": shape.max_position_embeddings,
        "kvBytesPerToken": shape.kv_bytes_per_token("auto"),
        "source": model.source,
        **({"unsupported": reason} if reason else {}),
    }
