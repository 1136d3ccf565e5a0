"""The table of the engine's flags, from its argument parser."""

import argparse

from docs.generate.blocks import table
from pagefleet_engine.config import build_parser


def flag_table() -> str:
    rows = [
        (f"`{', '.join(action.option_strings)}`", _default(action), action.help or "")
        for action in build_parser()._actions
        if "--help" not in action.option_strings
    ]
    return table(("flag", "default", "meaning"), rows)


def _default(action: argparse.Action) -> str:
    if action.required:
        return "required"
    return "derived" if action.default is None else f"`{action.default}`"
