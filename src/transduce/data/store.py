"""The splits of a prepared corpus as training reads them: memory-mapped token ids with the text beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from transduce.data.blocks import BlockLengths, Blocks
from transduce.data.mixture import Part
from transduce.data.ragged import OFFSET, Lengths, Ragged, open_array
from transduce.data.report import CorpusReport, SplitReport
from transduce.errors import DataError

STREAM = "tokens.bin"
"""All tokens of a split of plain text, an end token before every document."""
TEXT_ROWS = 4096
"""Texts read at a time."""


class Split(Protocol):
    """What batches are made of: rows with a source and a target length each."""

    @property
    def parts(self) -> Sequence[Part]:
        """The corpora that the rows come from, one after the other."""

    @property
    def source_lengths(self) -> Any:
        """Source tokens per row; indexed with an array of rows or a slice."""

    @property
    def target_lengths(self) -> Any:
        """Target tokens per row."""

    def __len__(self) -> int: ...

    def of_epoch(self, seed: int, epoch: int) -> Self:
        """Return the rows as they are read in an epoch."""


class PairStore:
    """One split: pairs of token rows with their text. Tokens are as the tokenizer gave them, without start and end.

    Of plain text a row is a block of a stream: sources are empty, there is no text beside them, and a target
    has the tokens that are read and one more, without start and end around them.
    """

    def __init__(
        self,
        sources: Ragged,
        targets: Ragged | Blocks,
        source_texts: Ragged,
        target_texts: Ragged,
        parts: Sequence[Part] | None = None,
    ) -> None:
        assert len(sources) == len(targets) == len(source_texts) == len(target_texts)
        self.parts = (Part(len(sources)),) if parts is None else tuple(parts)
        """The corpora that the rows come from, one after the other."""
        self.sources = sources
        self.targets = targets
        self._texts = (source_texts, target_texts)

    @classmethod
    def open(cls, folder: Path, token_bytes: dict[str, Any], report: SplitReport) -> PairStore:
        """Open the files of a split; the report says how many pairs and of which corpora they hold."""
        sides = [Ragged.open(folder, f"{side}.tokens", f"<u{token_bytes[side]}") for side in ("source", "target")]
        texts = [Ragged.open(folder, f"{side}.text", np.uint8) for side in ("source", "target")]
        parts = [Part(_rows(corpus), corpus.weight) for corpus in report.corpora or ()] or [Part(_rows(report))]
        if {len(part) for part in (*sides, *texts)} != {sum(part.size for part in parts)}:
            raise DataError(f"{folder}: its files hold different numbers of pairs; prepare the corpus again")
        sources, targets = sides
        source_texts, target_texts = texts
        return cls(sources, targets, source_texts, target_texts, parts)

    @classmethod
    def open_blocks(
        cls, folder: Path, token_bytes: int, report: SplitReport, block_size: int, beyond: int
    ) -> PairStore:
        """Open the stream of a split of plain text, to be cut into blocks."""
        values = open_array(folder / STREAM, np.dtype(f"<u{token_bytes}"))
        sizes = [corpus.tokens or 0 for corpus in report.corpora or ()] or [report.target.tokens]
        if sum(sizes) != len(values):
            raise DataError(
                f"{folder / STREAM}: its tokens are not those that the report counts; prepare the corpus again"
            )
        weights = [corpus.weight for corpus in report.corpora or ()] or [1.0]
        return cls.of_blocks(Blocks(values, sizes, block_size, beyond), weights)

    @classmethod
    def of_blocks(cls, blocks: Blocks, weights: Sequence[float]) -> PairStore:
        """Hold the blocks of plain text, of corpora with these weights."""
        nothing = Ragged(np.zeros(0, dtype=np.uint8), np.broadcast_to(np.zeros(1, dtype=OFFSET), len(blocks) + 1))
        return cls(nothing, blocks, nothing, nothing, list(map(Part, blocks.counts, weights)))

    @classmethod
    def of(cls, source_tokens: list[list[int]], target_tokens: list[list[int]]) -> PairStore:
        """Hold pairs in memory, without text: for tests and small trials."""
        nothing = Ragged.of([[] for _ in source_tokens], np.uint8)
        return cls(Ragged.of(source_tokens), Ragged.of(target_tokens), nothing, nothing)

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def source_lengths(self) -> Lengths:
        """Tokens per source; index with an array of rows or a slice."""
        return self.sources.lengths

    @property
    def target_lengths(self) -> Lengths | BlockLengths:
        """Tokens per target."""
        return self.targets.lengths

    def of_epoch(self, seed: int, epoch: int) -> PairStore:
        """Return the rows of an epoch: other blocks in each, where rows are blocks."""
        if not isinstance(self.targets, Blocks):
            return self
        return PairStore.of_blocks(self.targets.shifted(seed, epoch), [part.weight for part in self.parts])

    @property
    def pairs(self) -> tuple[Ragged, Ragged]:
        """Sources and targets, where these are rows of their own."""
        assert isinstance(self.targets, Ragged), "plain text has no pairs"
        return self.sources, self.targets

    @property
    def blocks(self) -> Blocks:
        """The blocks, where rows are those of plain text."""
        assert isinstance(self.targets, Blocks), "pairs have no blocks"
        return self.targets

    def source(self, row: int) -> NDArray[Any]:
        """Return the tokens of one source."""
        return self.sources[row]

    def target(self, row: int) -> NDArray[Any]:
        """Return the tokens of one target."""
        return self.targets[row]

    def text(self, row: int) -> tuple[str, str]:
        """Return source and target as they were before tokenising, normalised."""
        source, target = (side[row].tobytes().decode("utf-8") for side in self._texts)
        return source, target

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yield source and target of every pair, in order."""
        for start in range(0, len(self), TEXT_ROWS):
            stop = min(start + TEXT_ROWS, len(self))
            sources, targets = (_strings(*side.stretch(start, stop)) for side in self._texts)
            yield from zip(sources, targets, strict=True)


def _rows(report: SplitReport | CorpusReport) -> int:
    return report.kept if report.rows is None else report.rows


def _strings(content: NDArray[np.uint8], lengths: NDArray[np.int64]) -> list[str]:
    block = content.tobytes()
    return [block[start:end].decode("utf-8") for start, end in pairwise([0, *np.cumsum(lengths).tolist()])]
