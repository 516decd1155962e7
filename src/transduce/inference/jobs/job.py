"""A translation job: its options, applied to one window of a document after the other."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transduce.config import Table
from transduce.inference.alignment import pharaoh
from transduce.inference.ctranslate2.engine import nearest_options
from transduce.inference.jobs.source import Window, is_file
from transduce.inference.translation import Translation, TranslationCounts, TranslationOptions, one_line
from transduce.inference.translator import Translator
from transduce.model_folder import find_model
from transduce.storage.layout import MANIFEST
from transduce.storage.manifest import sha256


@dataclass(frozen=True)
class TranslatedWindow:
    """A window after translation."""

    text: str
    """The text to write."""
    segments: int
    counts: TranslationCounts
    read: int
    """Bytes of the input up to the window's end, approximately."""
    digest: str
    """Of the input up to the window's end."""


@dataclass(frozen=True)
class JobOptions:
    """Options of a command that translates a document."""

    translation: TranslationOptions
    n_best: int | None = None
    """Translations of each line to list with number and score; None writes the best one in place of the line."""
    has_prefixes: bool = False
    """Whether lines have prefixes."""
    has_languages: bool = False
    """Whether the document gives the target language of each text."""
    workers: int | None = None
    """Workers of CTranslate2; None takes what is fastest."""
    threads: int | None = None
    """Threads of each worker, or of PyTorch; None takes what is fastest."""


@dataclass(frozen=True)
class TranslationJob:
    """Translates windows with one translator. Several threads may call it at a time unless lines have prefixes."""

    translator: Translator
    options: JobOptions

    @property
    def uses_ctranslate2(self) -> bool:
        """Whether CTranslate2 takes most lines; with terms, many lines may have one."""
        translation, constraints = self.options.translation, self.options.translation.constraints
        prefixed = self.options.has_prefixes or self.translator.languages.target_prefix_length
        if prefixed or constraints.stops or constraints.has_terms:
            return False
        return self.translator.engine.uses_ctranslate2(translation.search)

    def nearest(self, given: Collection[str]) -> TranslationJob:
        """Return the job with the beam search of CTranslate2, if only that keeps CTranslate2 from taking it.

        Options that the user has given (`given`) stay.
        """
        translation = self.options.translation
        changed = replace(translation, search=nearest_options(translation.search, given))
        job = replace(self, options=replace(self.options, translation=changed))
        return job if job.uses_ctranslate2 and not self.uses_ctranslate2 else self

    def __call__(self, window: Window) -> TranslatedWindow:
        """Translate one window."""
        counts, texts = TranslationCounts(), window.texts
        languages = [self.translator.languages.prefix(to) for to in window.languages]
        translate = self.translator.translate_lines
        found = iter(translate(texts, self.options.translation, counts, languages) if texts else ())
        written = []
        for number, segment in enumerate(window.segments, start=window.first):
            translations = [next(found) for _ in segment.texts]
            if self.options.n_best is None:
                written.append(segment.write([self._line(several[0]) for several in translations]))
            else:
                written += [self._numbered(number, one) for one in translations[0][: self.options.n_best]]
        return TranslatedWindow("".join(written), len(window.segments), counts, window.read, window.digest)

    def _line(self, translation: Translation) -> str:
        return one_line(translation.text) + self._alignment(translation)

    def _numbered(self, number: int, translation: Translation) -> str:
        """A line of an n-best list, in Moses's format."""
        text, links = one_line(translation.text), self._alignment(translation)
        return f"{number} ||| {text} ||| {translation.score:.4f}{links}\n"

    def _alignment(self, translation: Translation) -> str:
        return f" ||| {pharaoh(translation.links)}" if self.options.translation.align else ""


# Fingerprint of everything a translation depends on: an interrupted job is resumed with the same one only.

IRRELEVANT_OPTIONS = ("run", "ensemble", "workers", "threads")
"""Options that do not change translations; of models the contents count, not the names."""
FILE_OPTIONS = ("prefix_file", "terms", "shortlist")
"""Options that name a file, of which the contents count too."""


def fingerprint(given: dict[str, Any], uses_ctranslate2: bool) -> Table:
    """Return the options as they were given, models and files by their hashes, and the engine."""
    found = {_option(name): value for name, value in given.items() if name not in IRRELEVANT_OPTIONS}
    found |= {_option(name): sha256(Path(given[name])) for name in FILE_OPTIONS if is_file(given[name] or "-")}
    models = [sha256(find_model(Path(run)) / MANIFEST) for run in (given["run"], *given["ensemble"])]
    return {**found, "model": models, "engine": "ctranslate2" if uses_ctranslate2 else "torch"}


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
