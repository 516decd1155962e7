"""A window in, its text out: what was asked of a translation, applied to one window after the other."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transduce.config import Table
from transduce.inference.alignment import pharaoh
from transduce.inference.answerer import Counts
from transduce.inference.ctranslate2.engine import nearest
from transduce.inference.jobs.source import Window, is_file
from transduce.inference.search.options import SearchOptions
from transduce.inference.translation import Translation
from transduce.inference.translator import Translator, one_line
from transduce.model_folder import find_model
from transduce.storage.layout import MANIFEST
from transduce.storage.manifest import sha256
from transduce.text.constraint import Constraints


@dataclass(frozen=True)
class Answered:
    """What became of a window."""

    text: str
    """All that is to be written."""
    segments: int
    counts: Counts
    read: int
    """Bytes of the input up to the window's end, about."""
    digest: str
    """Of the input up to the window's end."""


@dataclass(frozen=True)
class Answering:
    """What is asked of every window. Several threads may answer at a time where no answer has a prefix."""

    translator: Translator
    options: SearchOptions
    constraints: Constraints
    split: bool = True
    choose: Callable[[list[Translation]], list[Translation]] = list
    """Puts the answers to a line into another order."""
    listed: int | None = None
    """So many answers to each line are listed with number and score; None writes the best into its place."""
    prefixed: bool = False
    """Whether answers begin with something, line by line."""
    align: bool = False
    """Whether each answer comes with the words that belong together."""
    told: bool = False
    """Whether the document says of each text into which language."""

    @property
    def fast(self) -> bool:
        """Whether CTranslate2 answers, but for odd lines; where terms are asked for, many lines may have one."""
        begun = self.prefixed or self.translator.languages.written
        odd = begun or self.constraints.stops or self.constraints.has_terms
        return self.translator.engine.is_fast(self.options) and not odd

    def nearest(self, said: Collection[str]) -> Answering:
        """Return what CTranslate2 answers, where this differs from it only in how a beam is searched; else this.

        `said` are the options that somebody named, and that stay.
        """
        changed = replace(self, options=nearest(self.options, said))
        return changed if changed.fast and not self.fast else self

    def __call__(self, window: Window) -> Answered:
        counts = Counts()
        texts = window.texts
        leads = [self.translator.languages.lead(to) for to in window.languages]
        wishes = (self.options, self.constraints, self.split, self.align, self.choose, counts, leads)
        found = iter(self.translator.answer(texts, *wishes) if texts else ())
        written = []
        for number, segment in enumerate(window.segments, start=window.first):
            answers = [next(found) for _ in segment.texts]
            if self.listed is None:
                written.append(segment.write([self._line(several[0]) for several in answers]))
            else:
                written += [self._listed(number, answer) for answer in answers[0][: self.listed]]
        return Answered("".join(written), len(window.segments), counts, window.read, window.digest)

    def _line(self, answer: Translation) -> str:
        return one_line(answer.text) + (f" ||| {pharaoh(answer.links)}" if self.align else "")

    def _listed(self, number: int, answer: Translation) -> str:
        links = f" ||| {pharaoh(answer.links)}" if self.align else ""
        return f"{number} ||| {one_line(answer.text)} ||| {answer.score:.4f}{links}\n"


# What answers depend on, by the names that a person knows: a part is gone on with by the same wishes only.

NO_MATTER = ("run", "ensemble", "workers", "threads")
"""Options that say nothing about the answers; of models it is what is in them that counts, not their names."""
FILES = ("prefix_file", "terms", "shortlist")
"""Options that name a file, of which the same holds."""


def fingerprint(asked: dict[str, Any], fast: bool) -> Table:
    """Return all options as they were given, models and files by their hashes, and which engine answers what it can."""
    found = {_option(name): value for name, value in asked.items() if name not in NO_MATTER}
    found |= {_option(name): sha256(Path(asked[name])) for name in FILES if is_file(asked[name] or "-")}
    models = [sha256(find_model(Path(run)) / MANIFEST) for run in (asked["run"], *asked["ensemble"])]
    return {**found, "model": models, "engine": "ctranslate2" if fast else "torch"}


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
