"""A window in, its text out: what was asked of a translation, applied to one window after the other."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from transduce.answering.answerer import Counts
from transduce.answering.translation import Translation
from transduce.bulk.source import Window
from transduce.decoding.alignment import pharaoh
from transduce.decoding.options import SearchOptions
from transduce.engines.ctranslate2 import nearest
from transduce.text.constraint import Constraints
from transduce.translator import Translator, one_line


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
