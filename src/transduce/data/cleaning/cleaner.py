"""Clean a raw corpus of pairs: remove what harms training, repair what can be repaired, and account for every line.

The pairs are written to disk and read again by one detector after the other, each of which judges what the ones
before have left. In memory, a pair has a verdict of one byte, two lengths of four bytes, a line number, a hash and a
score of eight bytes each, and for a while the sorted hashes of one band: less than 100 bytes in all. Time is linear in
the corpus, apart from sorting hashes.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from transduce.data.cleaning.alignment_repair import find_misaligned
from transduce.data.cleaning.coverage import CrossCoverage
from transduce.data.cleaning.near_duplicates import NearDuplicates, pair_hashes, plain, repeated
from transduce.data.cleaning.outcome import Outcome, Verdicts
from transduce.data.cleaning.rules import CleaningConfig
from transduce.data.cleaning.side_language import LanguageDetector
from transduce.data.cleaning.words import numbers_of
from transduce.data.ragged import RaggedWriter, read_strings
from transduce.text.corpus import Pair
from transduce.text.identification import Identifier

CHUNK = 2**12
SAMPLE = 10_000
"""Lines that the languages and scripts of a side are learned from."""
MIN_COPIED_LETTERS = 12
"""A side that equals the other is a name or a number if it has fewer letters."""
MIN_RATIO_PAIRS = 50
"""Fewer pairs do not tell what ratio of lengths a corpus has."""
MIN_FACTOR = 1.7
"""Lengths that differ by less than this factor from the corpus' own ratio are never extreme."""

Progress = Callable[[str, int], None]
Chosen = NDArray[np.bool_]


class Cleaner:
    """Cleans one corpus in a temporary folder."""

    def __init__(
        self,
        config: CleaningConfig,
        folder: Path,
        languages: tuple[str | None, str | None] = (None, None),
        progress: Progress = lambda stage, count: None,
    ) -> None:
        self._config, self._folder, self._languages, self._progress = config, folder, languages, progress
        self._verdicts = Verdicts()
        self._notes: list[str] = []
        self._size = 0

    def clean(self, pairs: Iterable[Pair]) -> Outcome:
        """Judge all pairs; the outcome reads their texts from the folder."""
        self._read(pairs)
        realigned: dict[int, int] = {}
        for name, detect in (
            ("language", self._find_languages),
            ("ratio", self._find_extreme_ratios),
            ("duplicates", self._find_duplicates),
            ("near_duplicates", self._find_near_duplicates),
        ):
            if getattr(self._config, name):
                detect()
        if self._config.misaligned:
            realigned = self._find_misaligned()
        return Outcome(self._folder, self._size, self._verdicts, realigned, self._notes, self._texts)

    def _read(self, pairs: Iterable[Pair]) -> None:
        """Write all pairs to disk; judge what needs no other pair."""
        iterator, lengths, lines, hashes = iter(pairs), [], [], []
        with (
            RaggedWriter(self._folder, "source", np.uint8) as sources,
            RaggedWriter(self._folder, "target", np.uint8) as targets,
        ):
            while chunk := list(itertools.islice(iterator, CHUNK)):
                ours, theirs = [pair.source.strip() for pair in chunk], [pair.target.strip() for pair in chunk]
                sources.append_bytes([text.encode() for text in ours])
                targets.append_bytes([text.encode() for text in theirs])
                lines.append(np.array([pair.line for pair in chunk], dtype=np.int64))
                lengths.append(np.array([[len(text) for text in side] for side in (ours, theirs)], dtype=np.int32))
                self._verdicts.append([self._judge(*pair) for pair in zip(ours, theirs, strict=True)])
                if self._config.duplicates:
                    hashes.append(pair_hashes(ours, theirs))
                self._size += len(chunk)
                self._progress("reading", self._size)
        self._lengths = np.concatenate(lengths, axis=1) if lengths else np.zeros((2, 0), dtype=np.int32)
        self._hashes = np.concatenate(hashes) if hashes else np.zeros(0, dtype=np.uint64)
        self._verdicts.lines = np.concatenate(lines) if lines else np.zeros(0, dtype=np.int64)

    def _judge(self, source: str, target: str) -> str:
        """Return what is wrong with a pair alone, or nothing."""
        config = self._config
        if not source or not target:
            return "empty"
        if max(len(source), len(target)) > config.max_length:
            return "too_long"
        if config.min_letters and min(map(_letters, (source, target))) < config.min_letters:
            return "few_letters"
        if config.copies and len(plain(source)) >= MIN_COPIED_LETTERS and plain(source) == plain(target):
            return "copy"
        return ""

    def _texts(self, rows: NDArray[np.int64]) -> tuple[list[str], list[str]]:
        """Return the texts of rows in ascending order."""
        groups = np.split(rows, np.flatnonzero(np.diff(rows) > 64) + 1) if len(rows) else []
        sides: tuple[list[str], list[str]] = ([], [])
        for group in groups:
            first = int(group[0])
            for name, side in zip(("source", "target"), sides, strict=True):
                texts = read_strings(self._folder, name, first, int(group[-1]) + 1)
                side += [texts[row - first] for row in group.tolist()]
        return sides

    def _chunks(self, stage: str) -> Iterator[tuple[NDArray[np.int64], list[str], list[str]]]:
        """Yield the rows that are left, with their texts."""
        for start in range(0, self._size, CHUNK):
            rows = start + np.flatnonzero(self._verdicts.left[start : start + CHUNK])
            self._progress(stage, start)
            if len(rows):
                yield rows, *self._texts(rows)

    def _find_languages(self) -> None:
        left = np.flatnonzero(self._verdicts.left)
        if not len(left):
            return
        sample = left[np.arange(min(len(left), SAMPLE)) * len(left) // min(len(left), SAMPLE)]
        identifier = Identifier(
            "languages are identified by py3langid, which is not installed; install the extra `clean` "
            "(pip install 'transduce[clean]'), or switch it off (language = false)"
        )
        detector = LanguageDetector(self._texts(sample), self._languages, identifier)
        self._notes += detector.notes()
        for rows, sources, targets in self._chunks("identifying languages"):
            wrong, swapped = detector.judge(sources, targets)
            self._verdicts.mark(rows[wrong], "language")
            if self._config.repair:
                self._verdicts.swapped.update(rows[swapped].tolist())
            else:
                self._verdicts.mark(rows[swapped], "swapped")

    def _find_extreme_ratios(self) -> None:
        """Compare lengths as Gale and Church (1993) do: their difference grows with the square root of the length."""
        left = np.flatnonzero(self._verdicts.left)
        if len(left) < MIN_RATIO_PAIRS:
            self._notes.append(f"ratios of lengths are not judged in fewer than {MIN_RATIO_PAIRS} pairs")
            return
        source, target = self._lengths[:, left].astype(np.float64) + 3
        swapped = np.isin(left, sorted(self._verdicts.swapped))
        source[swapped], target[swapped] = target[swapped], source[swapped].copy()
        ratio = np.log(target / source)
        ratio -= np.median(ratio)
        scaled = ratio * np.sqrt(2 * source * target / (source + target))
        spread = max(1.0, 1.4826 * float(np.median(np.abs(scaled))))
        extreme = (np.abs(scaled) > self._config.max_deviation * spread) & (np.abs(ratio) > np.log(MIN_FACTOR))
        self._verdicts.mark(left[extreme], "ratio")

    def _find_duplicates(self) -> None:
        left = np.flatnonzero(self._verdicts.left)
        later, _ = repeated(left, self._hashes[left])
        self._verdicts.mark(later, "duplicate")

    def _find_near_duplicates(self) -> None:
        finder = NearDuplicates(self._folder, self._config.similarity)
        try:
            for _, sources, targets in self._chunks("comparing pairs"):
                finder.add(sources, targets)
            left = np.flatnonzero(self._verdicts.left)
            found = finder.find(left, self._texts)
        finally:
            finder.close()
        self._verdicts.mark(np.array(sorted(found), dtype=np.int64), "near_duplicate")
        self._verdicts.earlier.update(found)

    def _find_misaligned(self) -> dict[int, int]:
        """Judge what is left, but also what a shift may have made extreme or repeated."""
        coverage = CrossCoverage(self._folder)
        judged = self._verdicts.left | self._verdicts.of("ratio") | self._verdicts.of("near_duplicate")
        for start in range(0, self._size, CHUNK):
            rows = np.arange(start, min(start + CHUNK, self._size))
            self._progress("counting words", start)
            sources, targets = self._texts(rows)
            for row in self._verdicts.swapped & set(rows.tolist()):
                sources[row - start], targets[row - start] = targets[row - start], sources[row - start]
            words, translated = ([numbers_of(text) for text in side] for side in (sources, targets))
            coverage.add(words, translated, self._verdicts.left[rows])
        self._progress("aligning words", self._size)
        coverage.learn()
        found = find_misaligned(coverage, np.flatnonzero(judged), self._config.max_shift, self._size)
        if found.note:
            self._notes.append(found.note)
        self._verdicts.mark(found.misaligned[self._verdicts.left[found.misaligned]], "misaligned")
        realigned = {row: target for row, target in found.realigned.items() if self._can_pair(row, target)}
        lost = sorted(found.realigned.keys() - realigned.keys())
        self._verdicts.mark(np.array([row for row in lost if self._verdicts.left[row]], dtype=np.int64), "misaligned")
        if not self._config.repair:
            rows = np.array([row for row in realigned if self._verdicts.left[row]], dtype=np.int64)
            self._verdicts.mark(rows, "misaligned")
            return {}
        self._verdicts.clear(np.array(sorted(realigned), dtype=np.int64))
        return realigned

    def _can_pair(self, row: int, target: int) -> bool:
        """Whether a source and the target of another row may become a pair."""
        both = {row, target}
        return not both & self._verdicts.swapped and all(
            self._verdicts.reason(one) in ("", "ratio", "misaligned", "near_duplicate") for one in both
        )


def _letters(text: str) -> float:
    """Return the fraction of letters and their marks among the characters that are not spaces."""
    if text.isascii():
        others = sum(map(str.isspace, text))
        return sum(map(str.isalpha, text)) / max(1, len(text) - others)
    visible = [character for character in text if not character.isspace()]
    return sum(character.isalpha() or _is_mark(character) for character in visible) / max(1, len(visible))


def _is_mark(character: str) -> bool:
    return character >= "\u0300" and unicodedata.category(character) in ("Mn", "Mc")
