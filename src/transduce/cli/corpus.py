"""Options that name corpora, and the progress of preparing them: for every verb that reads pairs."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

import click

from transduce.config import Table

CORPORA = {"train": "training", "validation": "validation", "test": "test"}


def corpus_options(function: Any) -> Any:
    """Add the options that name the three corpora; the training corpus has the plain names."""
    for name, what in reversed(CORPORA.items()):
        prefix = "" if name == "train" else f"{name}-"
        for option, text in (
            ("path", f"TSV or JSONL file with the {what} pairs (.gz too)."),
            ("target", f"File of {what} targets, line by line."),
            ("source", f"File of {what} sources, line by line (.gz too; - is standard input)."),
        ):
            function = click.option(f"--{prefix}{option}", f"{name}_{option}", metavar="FILE", help=text)(function)
    return function


def corpus_tables(options: dict[str, Any]) -> Table:
    """Return the corpora that the options name, as tables of `[data]`."""
    found: Table = {}
    for name in CORPORA:
        corpus = {side: options[f"{name}_{side}"] for side in ("source", "target", "path") if options[f"{name}_{side}"]}
        if corpus:
            found[name] = corpus
    return found


class PreparationProgress:
    """One live line on a terminal; elsewhere a plain line when something new begins."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._stage = ""
        self._shown = 0.0

    def show(self, stage: str, count: int) -> None:
        """Say how far a stage has come."""
        if stage == self._stage and (not self._live or time.monotonic() - self._shown < 0.1):
            return
        if self._live:
            self._say(f"\r\x1b[K{stage}: {count:,} pairs")
        elif stage != self._stage:
            self._say(f"{stage} …\n")
        self._stage, self._shown = stage, time.monotonic()

    def __enter__(self) -> PreparationProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live and self._stage:
            self._say("\r\x1b[K")

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError):  # nobody reads it any more (`2>&1 | head`); the work goes on
            click.echo(text, err=True, nl=False)
