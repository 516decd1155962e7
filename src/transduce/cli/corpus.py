"""Options that name corpora, and the progress of preparing them: for every verb that reads pairs."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

import click

from transduce.config import Table
from transduce.errors import SettingsError

CORPORA = {"train": "training", "validation": "validation", "test": "test", "extra_validation": "watched"}


def corpus_options(function: Any) -> Any:
    """Add the options that name the three corpora; the training corpus has the plain names, `--mix` adds more."""
    mixed = "One more training corpus, as path=more.tsv,weight=0.5 or source=a.de,target=a.en (any number of times)."
    function = click.option("--mix", "mixed", multiple=True, metavar="SETTINGS", help=mixed)(function)
    watched = "Watch the score on the validation pairs of another run too: what a model forgets."
    function = click.option("--extra-validation", metavar="RUN", help=watched)(function)
    rule = click.Choice(["blank", "line", "file"])
    what_ends = "What ends a document of plain text: a blank line (default), every line, or the end of the file."
    function = click.option("--document", type=rule, help=what_ends)(function)
    for name, what in reversed(CORPORA.items()):
        prefix = "" if name == "train" else f"{name}-"
        for option, text in (
            ("text", f"File of plain text, the {what} text of a language model (.gz too)."),
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
        sides = ("source", "target", "path", "text")
        corpus = {side: options[f"{name}_{side}"] for side in sides if options[f"{name}_{side}"]}
        if corpus:
            found[name] = corpus
    if options["extra_validation"] is not None:
        if "extra_validation" in found:
            raise SettingsError("give --extra-validation RUN, or files to watch, not both")
        found["extra_validation"] = _prepared(options["extra_validation"])
    if options["mixed"]:
        found["train"] = [found["train"]] if "train" in found else []
        found["train"] += [_settings(text) for text in options["mixed"]]
    if options["document"]:
        _say_document(found, options["document"])
    return found


def _prepared(folder: str) -> Table | list[Table]:
    """Name the validation pairs of a run or prepared corpus; of several languages each by itself."""
    from transduce.tasks.translation.corpus import PreparedPairs

    tags = PreparedPairs(prepared=folder).tags()
    one: Table = {"prepared": folder}
    return one if tags is None else [{**one, "target_language": language} for language in tags.languages]


def _say_document(found: Table, rule: str) -> None:
    """Say of every file of plain text what ends a document in it, where it does not say so itself."""
    corpora = [one for given in found.values() for one in (given if isinstance(given, list) else [given])]
    texts = [corpus for corpus in corpora if "text" in corpus]
    if not texts:
        raise SettingsError("--document is for plain text; name some with --text")
    for corpus in texts:
        corpus.setdefault("document", rule)


def _settings(text: str) -> Table:
    """Read `path=a.tsv,weight=2` as a table."""
    corpus: Table = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise SettingsError(f"--mix {text}: write it as path=more.tsv,weight=0.5 or source=a.de,target=a.en")
        corpus[name.strip()] = _number(value) if name.strip() == "weight" else value
    return corpus


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


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
            self._say(f"\r\x1b[K{stage}: {count:,}")
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
