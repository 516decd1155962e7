"""The second pass over a corpus: pairs become tokens, and one split's files are written."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from transduce.data.audit import MARKS, Tally
from transduce.data.config import RATIO_FLOOR
from transduce.data.ragged import RaggedWriter
from transduce.data.report import Side, SplitReport
from transduce.text.corpus import Pair
from transduce.text.tokenizer import Tokenizer


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


class _SideCount:
    """Token counts of one side, by length."""

    def __init__(self, tokenizer: Tokenizer, max_length: int) -> None:
        self._tokenizer = tokenizer
        self._unknown = 0
        self._by_length: NDArray[np.int64] = np.zeros(max_length + 1, dtype=np.int64)

    def add(self, rows: Sequence[Sequence[int]]) -> None:
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        self._by_length += np.bincount(lengths, minlength=len(self._by_length))
        if self._tokenizer.unknown is not None:
            self._unknown += sum(self._tokenizer.count_unknown(row) for row in rows)

    def side(self) -> Side:
        total = int(self._by_length.sum())
        reached = np.cumsum(self._by_length)
        at = [int(np.searchsorted(reached, max(1, np.ceil(share * total)))) for share in (0.5, 0.9, 0.99, 1.0)]
        median, percentile_90, percentile_99, longest = at if total else (0, 0, 0, 0)
        return Side(
            tokens=int(self._by_length @ np.arange(len(self._by_length))),
            unknown=None if self._tokenizer.unknown is None else self._unknown,
            median=median,
            percentile_90=percentile_90,
            percentile_99=percentile_99,
            longest=longest,
        )


class SplitWriter:
    """Writes the files of one split and counts what goes in and what does not."""

    def __init__(self, folder: Path, tokenizers: tuple[Tokenizer, Tokenizer], limits: Limits, tally: Tally) -> None:
        folder.mkdir()
        self.tally = tally
        self._limits = limits
        self._tokenizers = tokenizers
        self._counts = [_SideCount(tokenizer, limits.max_length) for tokenizer in tokenizers]
        with ExitStack() as stack:
            self._tokens, self._texts = [], []
            for name, tokenizer in zip(("source", "target"), tokenizers, strict=True):
                ids = f"<u{token_bytes(tokenizer.size)}"
                self._tokens.append(stack.enter_context(RaggedWriter(folder, f"{name}.tokens", ids)))
                self._texts.append(stack.enter_context(RaggedWriter(folder, f"{name}.text", np.uint8)))
            self._files = stack.pop_all()

    def write(self, pairs: Sequence[Pair], marks: NDArray[np.uint8]) -> None:
        """Tokenise pairs and append those within the limits; `marks` are the findings each came with."""
        if not pairs:
            return
        sources = self._tokenizers[0].encode_batch([pair.source for pair in pairs])
        targets = self._tokenizers[1].encode_batch([pair.target for pair in pairs])
        kept = [row for row, pair in enumerate(pairs) if self._keeps(pair, sources[row], targets[row], int(marks[row]))]
        for side, tokens in enumerate((sources, targets)):
            rows = [tokens[row] for row in kept]
            self._counts[side].add(rows)
            self._tokens[side].append(rows)
        self._texts[0].append_bytes([pairs[row].source.encode() for row in kept])
        self._texts[1].append_bytes([pairs[row].target.encode() for row in kept])
        self.tally.kept += len(kept)

    def _keeps(self, pair: Pair, source: list[int], target: list[int], marks: int) -> bool:
        shorter, longer = sorted((len(source), len(target)))
        if shorter == 0:  # the tokenizer drops some invisible characters
            self.tally.found("empty", pair, dropped=1)
            return False
        if longer > self._limits.max_length:
            self.tally.found("too_long", pair, dropped=1)
            return False
        extreme = longer > self._limits.max_ratio * max(shorter, RATIO_FLOOR)
        if extreme and self._limits.drop_ratio:
            self.tally.found("ratio", pair, dropped=1)
            return False
        if extreme:
            self.tally.found("ratio", pair, kept=1)
        if marks:
            for reason, mark in MARKS.items():
                if marks & mark:
                    self.tally.found(reason, pair, kept=1)
        return True

    def report(self) -> SplitReport:
        """Return what was counted."""
        source, target = (count.side() for count in self._counts)
        tally = self.tally
        return SplitReport(
            read=tally.read,
            kept=tally.kept,
            held_out=tally.held_out,
            findings=tally.findings(),
            source=source,
            target=target,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._files.__exit__(kind, error, at)
