"""The second pass over pairs: tokenise them and write the files of one split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from transduce.data.audit import MARKS
from transduce.data.length_filter import LengthFilter, Lengths, count_issue
from transduce.data.ragged import RaggedWriter
from transduce.data.report import CorpusCounter, LengthCounter, SplitReport, split_report
from transduce.text.corpus import Pair
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.language_tag import NO_PREFIX, LanguagePrefix
from transduce.text.tokenizer.word_cache import WordCache


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


def prepend(tokens: NDArray[np.uint32], lengths: Lengths, prefix: Sequence[int]) -> tuple[NDArray[np.uint32], Lengths]:
    """Put the same tokens before each of some rows that follow each other in one array; return rows and lengths."""
    if not prefix:
        return tokens, lengths
    starts = np.repeat(np.cumsum(lengths) - lengths, len(prefix))
    return np.insert(tokens, starts, np.tile(np.array(prefix, dtype=np.uint32), len(lengths))), lengths + len(prefix)


class PairWriter:
    """Writes the pairs of one split as tokens and text, and counts what is kept and dropped."""

    def __init__(self, folder: Path, tokenizers: Sequence[AnyTokenizer], limits: LengthFilter) -> None:
        folder.mkdir()
        self._limits = limits
        caches = {id(tokenizer): WordCache(tokenizer) for tokenizer in tokenizers}
        self._caches = [caches[id(tokenizer)] for tokenizer in tokenizers]
        self._lengths = [LengthCounter(tokenizer, limits.max_length) for tokenizer in tokenizers]
        with ExitStack() as stack:
            self._tokens, self._texts = [], []
            for name, tokenizer in zip(("source", "target"), tokenizers, strict=True):
                ids = f"<u{token_bytes(tokenizer.size)}"
                self._tokens.append(stack.enter_context(RaggedWriter(folder, f"{name}.tokens", ids)))
                self._texts.append(stack.enter_context(RaggedWriter(folder, f"{name}.text", np.uint8)))
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
        counter.kept += int(np.count_nonzero(kept))

    def report(self, counters: Sequence[CorpusCounter]) -> SplitReport:
        """Return the report of the split, whose corpora were counted by these."""
        source, target = (side.statistics() for side in self._lengths)
        return split_report(counters, source, target)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._files.__exit__(kind, error, at)
