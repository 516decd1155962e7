"""Printing: results on standard output, notes on standard error, more or fewer by `--verbose` and `--quiet`.

Text from files and models passes `visible`, so that it cannot control the terminal.
"""

from __future__ import annotations

import contextlib
import json
import unicodedata
from typing import Any

import click

HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode categories without a glyph: control, format, surrogate, private use, unassigned, line and paragraph
separator."""

PLAIN_SECONDS = 10.0
"""Seconds between two progress lines where standard error is not a terminal."""

_VERBOSITY = "transduce.verbosity"


def visible(text: str) -> str:
    """Return text on one line, with every invisible character escaped as \\n, \\x1b or \\u202e."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode() if unicodedata.category(character) in HIDDEN else character
        for character in text
    )


def set_verbosity(context: click.Context, change: int) -> None:
    """Make the running command print more (1) or less (-1)."""
    if context.meta.get(_VERBOSITY, change) != change:
        raise click.UsageError("--quiet and --verbose exclude each other", context)
    context.meta[_VERBOSITY] = change


def verbosity() -> int:
    """Return -1 with `--quiet`, 1 with `--verbose`, 0 otherwise."""
    context = click.get_current_context(silent=True)
    return 0 if context is None else int(context.meta.get(_VERBOSITY, 0))


def is_quiet() -> bool:
    """Whether progress and notes are not to be printed."""
    return verbosity() < 0


def note(message: str, label: str = "note: ") -> None:
    """Print a note on standard error unless `--quiet` is given."""
    if not is_quiet():
        with contextlib.suppress(OSError):  # standard error is closed (`2>&1 | head`); the command continues
            click.echo(f"{label}{message}", err=True)


def detail(message: str) -> None:
    """Print what only `--verbose` shows."""
    if verbosity() > 0:
        note(message, "")


def print_json(value: Any, indent: int | None = None) -> None:
    """Print one JSON value on standard output."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=indent))
