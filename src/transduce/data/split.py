"""The second pass over corpora: pairs become tokens, and one split's files are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from transduce.data.audit import MARKS
from transduce.data.ragged import RaggedWriter
from transduce.data.report import MAX_EXAMPLES, Side, SplitReport, Tally
from transduce.text.corpus import Pair
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.tag import NO_LEAD, Lead
from transduce.text.tokenizer.word_cache import WordCache

RATIO_FLOOR = 5
"""A side counts as at least this many tokens when two lengths are compared."""

Lengths = NDArray[np.int64]
Chosen = NDArray[np.bool_]


@dataclass(frozen=True)
class Limits:
    """What a pair of token rows may be."""

    max_length: int
    max_ratio: float
    drop_ratio: bool
    """Whether extreme ratios are dropped or only counted."""


def token_bytes(size: int) -> int:
    """Return the bytes that an id of a vocabulary of this size takes on disk."""
    return 2 if size <= 2**16 else 4


class SideCount:
    """Token counts of one side, by length."""

    def __init__(self, tokenizer: AnyTokenizer, max_length: int) -> None:
        self._token = tokenizer.unknown
        self._unknown = 0
        self._by_length: NDArray[np.int64] = np.zeros(max_length + 1, dtype=np.int64)

    def add(self, tokens: NDArray[np.uint32], lengths: Lengths) -> None:
        self._by_length += np.bincount(lengths, minlength=len(self._by_length))
        if self._token is not None:
            self._unknown += int(np.count_nonzero(tokens == self._token))

    def side(self) -> Side:
        total = int(self._by_length.sum())
        reached = np.cumsum(self._by_length)
        at = [int(np.searchsorted(reached, max(1, np.ceil(share * total)))) for share in (0.5, 0.9, 0.99, 1.0)]
        median, percentile_90, percentile_99, longest = at if total else (0, 0, 0, 0)
        return Side(
            tokens=int(self._by_length @ np.arange(len(self._by_length))),
            unknown=None if self._token is None else self._unknown,
            median=median,
            percentile_90=percentile_90,
            percentile_99=percentile_99,
            longest=longest,
        )


@dataclass(frozen=True)
class Texts:
    """Some pairs of one corpus that go to one split."""

    sources: Sequence[str]
    targets: Sequence[str]
    marks: NDArray[np.uint8]
    """The findings each came with."""
    pair: Callable[[int], Pair]
    """Gives one of them, by its place here, with its line number."""


def led(tokens: NDArray[np.uint32], lengths: Lengths, before: Sequence[int]) -> tuple[NDArray[np.uint32], Lengths]:
    """Put the same tokens before each of some rows that stand one after the other; return rows and lengths."""
    if not before:
        return tokens, lengths
    starts = np.repeat(np.cumsum(lengths) - lengths, len(before))
    return np.insert(tokens, starts, np.tile(np.array(before, dtype=np.uint32), len(lengths))), lengths + len(before)


class SplitWriter:
    """Writes the files of one split and counts what goes in and what does not."""

    def __init__(self, folder: Path, tokenizers: tuple[AnyTokenizer, AnyTokenizer], limits: Limits) -> None:
        folder.mkdir()
        self._limits = limits
        caches = {id(tokenizer): WordCache(tokenizer) for tokenizer in tokenizers}
        self._caches = [caches[id(tokenizer)] for tokenizer in tokenizers]
        self._counts = [SideCount(tokenizer, limits.max_length) for tokenizer in tokenizers]
        with ExitStack() as stack:
            self._tokens, self._texts = [], []
            for name, tokenizer in zip(("source", "target"), tokenizers, strict=True):
                ids = f"<u{token_bytes(tokenizer.size)}"
                self._tokens.append(stack.enter_context(RaggedWriter(folder, f"{name}.tokens", ids)))
                self._texts.append(stack.enter_context(RaggedWriter(folder, f"{name}.text", np.uint8)))
            self._files = stack.pop_all()

    def write(self, texts: Texts, tally: Tally, lead: Lead = NO_LEAD) -> None:
        """Tokenise pairs and append those within the limits, each side with its lead before it."""
        sides = (texts.sources, texts.targets)
        encoded = [
            led(*cache.encode(side), before) for cache, side, before in zip(self._caches, sides, lead, strict=True)
        ]
        kept = self._keeps(texts, encoded[0][1], encoded[1][1], tally, lead)
        for side, (tokens, lengths) in enumerate(encoded):
            if not kept.all():
                tokens, lengths = tokens[np.repeat(kept, lengths)], lengths[kept]
            self._counts[side].add(tokens, lengths)
            self._tokens[side].append_flat(tokens, lengths)
            self._texts[side].append_bytes([text.encode() for text in compress(sides[side], kept.tolist())])
        tally.kept += int(np.count_nonzero(kept))

    def _keeps(self, texts: Texts, source: Lengths, target: Lengths, tally: Tally, lead: Lead) -> Chosen:
        """Return which pairs stay; each of the others is counted for the first reason against it."""
        shorter, longer = np.minimum(source, target), np.maximum(source, target)
        kept = np.ones(len(source), dtype=np.bool_)

        def found(reason: str, which: Chosen, dropped: bool) -> None:
            places = np.flatnonzero(which & kept)
            if len(places):
                examples = [texts.pair(int(place)) for place in places[:MAX_EXAMPLES]]
                tally.found(reason, examples, **{"dropped" if dropped else "kept": len(places)})
            if dropped:
                kept[places] = False

        empty = (source == len(lead.source)) | (target == len(lead.target))
        found("empty", empty, dropped=True)  # the tokenizer drops some invisible characters
        found("too_long", longer > self._limits.max_length, dropped=True)
        extreme = longer > self._limits.max_ratio * np.maximum(shorter, RATIO_FLOOR)
        found("ratio", extreme, dropped=self._limits.drop_ratio)
        for reason, mark in MARKS.items():
            found(reason, texts.marks & mark != 0, dropped=False)
        return kept

    def report(self, tallies: Iterable[Tally]) -> SplitReport:
        """Return what was counted."""
        tallies = list(tallies)
        source, target = (count.side() for count in self._counts)
        total = Tally.total(tallies)
        is_mixed = len(tallies) > 1 or tallies[0].weight != 1
        return SplitReport(
            read=total.read,
            kept=total.kept,
            held_out=total.held_out,
            findings=total.findings(),
            source=source,
            target=target,
            corpora=tuple(tally.report() for tally in tallies) if is_mixed else None,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._files.__exit__(kind, error, at)
