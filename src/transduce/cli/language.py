"""Options that say which languages are asked for, for every verb that has a model translate."""

from __future__ import annotations

from typing import Any

import click


def language_options(function: Any) -> Any:
    """Add `--to` and `--from`."""
    told = "The language of the texts, where the model has to be told."
    function = click.option("--from", "of", metavar="LANGUAGE", help=told)(function)
    return click.option("--to", metavar="LANGUAGE", help="The language to ask a model of several for.")(function)
