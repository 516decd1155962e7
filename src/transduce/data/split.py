"""The second pass over pairs: tokenise them and write the files of one split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, compress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from transduce.data.audit import MARKS, LengthFilter, Lengths, count_issue
from transduce.data.ragged import RaggedWriter, take_rows
from transduce.data.report import CorpusCounter, LengthCounter, SplitReport, split_report
from transduce.data.store import ALIGNMENT
from transduce.text.alignment import Links, token_links
from transduce.text.corpus import Pair
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.special import NO_PREFIX, LanguagePrefix


def token_bytes(size: int) -> int:
    """Return the bytes that an id of a vocabulary of this size takes on disk."""
    return 2 if size <= 2**16 else 4


@dataclass(frozen=True)
class PairChunk:
    """Some pairs of one corpus that go to one split."""

    sources: Sequence[str]
    targets: Sequence[str]
    marks: NDArray[np.uint8]
    """The issues of each pair that the audit marked."""
    pair: Callable[[int], Pair]
    """Gives one of them, by its place here, with its line number."""
    links: Sequence[Links] | None = None
    """The word alignments of the pairs, where there are some to keep."""


def prepend(tokens: NDArray[np.uint32], lengths: Lengths, prefix: Sequence[int]) -> tuple[NDArray[np.uint32], Lengths]:
    """Put the same tokens before each of some rows that follow each other in one array; return rows and lengths."""
    if not prefix:
        return tokens, lengths
    starts = np.repeat(np.cumsum(lengths) - lengths, len(prefix))
    return np.insert(tokens, starts, np.tile(np.array(prefix, dtype=np.uint32), len(lengths))), lengths + len(prefix)


class PairWriter:
    """Writes the pairs of one split as tokens and text, and counts what is kept and dropped."""

    def __init__(
        self, folder: Path, tokenizers: Sequence[AnyTokenizer], limits: LengthFilter, aligned: Path | None = None
    ) -> None:
        """`aligned` is where the given alignments go, as links between tokens: see `data.aligner`."""
        folder.mkdir()
        self._limits, self._tokenizers = limits, tokenizers
        caches = {id(tokenizer): WordCache(tokenizer) for tokenizer in tokenizers}
        self._caches = [caches[id(tokenizer)] for tokenizer in tokenizers]
        self._lengths = [LengthCounter(tokenizer, limits.max_length) for tokenizer in tokenizers]
        with ExitStack() as stack:
            self._tokens, self._texts = [], []
            for name, tokenizer in zip(("source", "target"), tokenizers, strict=True):
                ids = f"<u{token_bytes(tokenizer.size)}"
                self._tokens.append(stack.enter_context(RaggedWriter(folder, f"{name}.tokens", ids)))
                self._texts.append(stack.enter_context(RaggedWriter(folder, f"{name}.text", np.uint8)))
            self._links = None if aligned is None else stack.enter_context(RaggedWriter(aligned, ALIGNMENT, "<u4"))
            self.unusable = 0
            """Given alignments that cannot be used, since the tokenizer splits the words of their pair elsewhere."""
            self._files = stack.pop_all()

    def write(self, chunk: PairChunk, counter: CorpusCounter, prefix: LanguagePrefix = NO_PREFIX) -> None:
        """Tokenise pairs and append those within the limits, each side with its prefix."""
        sides = (chunk.sources, chunk.targets)
        encoded = [
            prepend(*cache.encode(side), tokens)
            for cache, side, tokens in zip(self._caches, sides, prefix, strict=True)
        ]
        sizes = (len(prefix.source), len(prefix.target))
        kept = self._limits.keeps_tokens(encoded[0][1], encoded[1][1], sizes, chunk.pair, counter)
        for reason, mark in MARKS.items():
            count_issue(reason, chunk.marks & mark != 0, kept, chunk.pair, counter, drop=False)
        for side, (tokens, lengths) in enumerate(encoded):
            if not kept.all():
                tokens, lengths = tokens[np.repeat(kept, lengths)], lengths[kept]
            self._lengths[side].add(tokens, lengths)
            self._tokens[side].append_flat(tokens, lengths)
            self._texts[side].append_bytes([text.encode() for text in compress(sides[side], kept.tolist())])
        if self._links is not None:
            assert chunk.links is not None
            pairs = compress(zip(*sides, chunk.links, strict=True), kept.tolist())
            self._links.append([self._token_links(source, target, links, sizes) for source, target, links in pairs])
        counter.kept += int(np.count_nonzero(kept))

    def _token_links(self, source: str, target: str, links: Links, before: tuple[int, int]) -> list[int]:
        """Return the links between tokens (target, source, target, …), which `before` others precede on each side."""
        if not links:
            return []
        words = [tokenizer.words_of(text) for tokenizer, text in zip(self._tokenizers, (source, target), strict=True)]
        for text, word_of in zip((source, target), words, strict=True):
            if max((word for word in word_of if word is not None), default=-1) + 1 != len(text.split()):
                self.unusable += 1
                return []
        found = token_links(links, words[0], words[1])
        return [place for token, other in found for place in (token + before[1], other + before[0])]

    def report(self, counters: Sequence[CorpusCounter]) -> SplitReport:
        """Return the report of the split, whose corpora were counted by these."""
        source, target = (side.statistics() for side in self._lengths)
        return split_report(counters, source, target)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._files.__exit__(kind, error, at)


BY_WORD = ("bpe", "unigram", "wordpiece", "word")
"""Kinds that split at spaces first, so that tokens never span two words."""

MAX_WORDS = 2**18
MAX_CHARACTERS = 2**23
"""Limits of the cache; beyond either, it is cleared."""


class WordCache:
    """Encodes texts word by word, with a cache.

    For the kinds of tokenizer that split text at spaces first, a word has the same tokens everywhere, so that a text's
    tokens are the concatenation of those of its words. A corpus has few distinct words (Zipf 1949): looking them up is
    ten times faster than tokenizing them.
    """

    def __init__(self, tokenizer: AnyTokenizer) -> None:
        self._tokenizer = tokenizer
        self._by_word = tokenizer.kind in BY_WORD
        self._clear()

    def _clear(self) -> None:
        self._places: dict[str, int] = {}
        self._characters = 0
        self._values: NDArray[np.uint32] = np.zeros(2**16, dtype=np.uint32)
        self._ends: NDArray[np.int64] = np.zeros(2**12, dtype=np.int64)
        """End of each word's tokens, after a leading 0."""

    def encode(self, texts: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the tokens of all texts in one array, and their lengths; equal to `Tokenizer.encode_batch`."""
        if not self._by_word:
            return _flat(self._tokenizer.encode_batch(texts))
        if len(self._places) > MAX_WORDS or self._characters > MAX_CHARACTERS:
            self._clear()
        words, counts = self._words(texts)
        places = list(map(self._places.get, words))
        if None in places:
            new = [at for at, place in enumerate(places) if place is None]
            self._add(dict.fromkeys(words[at] for at in new))
            for at in new:
                places[at] = self._places[words[at]]
        place = np.array(places, dtype=np.int64)
        values, lengths = take_rows(self._values, self._ends[place], self._ends[place + 1])
        reached = np.concatenate([[0], np.cumsum(lengths)])
        after = np.cumsum(np.array(counts, dtype=np.int64))
        return values, np.diff(reached[after], prepend=0)

    @staticmethod
    def _words(texts: Sequence[str]) -> tuple[list[str], list[int]]:
        """Split each text at its spaces; one with other white space than single spaces stays whole."""
        words: list[str] = []
        counts = []
        for text in texts:
            parts = text.split()
            if " ".join(parts) != text:
                parts = [text]
            words += parts
            counts.append(len(parts))
        return words, counts

    def _add(self, words: dict[str, None]) -> None:
        values, lengths = _flat(self._tokenizer.encode_batch(list(words)))
        known = len(self._places)
        first = int(self._ends[known])
        self._values = _with_room(self._values, first + len(values))
        self._ends = _with_room(self._ends, known + len(words) + 1)
        self._values[first : first + len(values)] = values
        self._ends[known + 1 : known + 1 + len(words)] = first + np.cumsum(lengths)
        for word in words:
            self._places[word] = len(self._places)
            self._characters += len(word)


def _flat(rows: Sequence[Sequence[int]]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    return np.fromiter(chain.from_iterable(rows), dtype=np.uint32, count=int(lengths.sum())), lengths


def _with_room(array: NDArray[Any], size: int) -> NDArray[Any]:
    """Return the array, or a copy of twice the size needed."""
    if size <= len(array):
        return array
    larger = np.zeros(2 * size, dtype=array.dtype)
    larger[: len(array)] = array
    return larger
