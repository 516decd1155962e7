"""The splits of a prepared corpus: memory-mapped tokens, with their text or examples."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from transduce.data.ragged import OFFSET, Array, FileArray, Lengths, Ragged, offsets_path, open_array, take_rows
from transduce.data.report import CorpusReport, SplitReport
from transduce.errors import DataError
from transduce.rng import Rows, round_keys

# Plain text as rows: one long stream of tokens, cut into blocks when they are read.
#
# A corpus on disk is a stream of tokens, an end token before every document. It is treated as a ring: the end token
# of the first document follows the last one. So every token, end tokens included, is predicted exactly once in an
# epoch, wherever the first block begins; that place differs between epochs, so that the text is cut at other places.
# All blocks of a corpus have the same length, except the last.


class Blocks:
    """The blocks of one or several corpora in one array, one after the other."""

    def __init__(
        self,
        values: Array | FileArray,
        sizes: Sequence[int],
        block: int,
        beyond: int,
        shifts: Sequence[int] | None = None,
    ) -> None:
        """`sizes` are the tokens of each corpus; a row has the tokens of a block and `beyond` more (a language model
        predicts the token after each); `shifts` are the places in each corpus where its first block begins."""
        assert sum(sizes) == len(values)
        self._values, self._sizes, self.block, self._beyond = values, [*sizes], block, beyond
        self._shifts = np.array([0] * len(sizes) if shifts is None else shifts, dtype=np.int64)
        self.counts = [-(-size // block) for size in sizes]
        """Blocks of each corpus."""
        self._first_rows = np.cumsum([0, *self.counts], dtype=np.int64)
        self._starts = np.cumsum([0, *sizes], dtype=np.int64)
        self.lengths = BlockLengths(self)

    def __len__(self) -> int:
        return int(self._first_rows[-1])

    def shifted(self, seed: int, epoch: int) -> Blocks:
        """Return the blocks of an epoch, shifted; those of the first epoch begin where the corpora do."""
        if epoch == 0:
            return self
        shifts = [
            int(round_keys(seed, "block", epoch, number)[0] % np.uint64(max(1, size)))
            for number, size in enumerate(self._sizes)
        ]
        return Blocks(self._values, self._sizes, self.block, self._beyond, shifts)

    def tokens_in(self, rows: Rows) -> NDArray[np.int64]:
        """How many tokens of its corpus each of these blocks has, without those beyond it."""
        corpus, place = self._places(rows)
        size = np.array(self._sizes, dtype=np.int64)[corpus]
        left: NDArray[np.int64] = np.minimum(self.block, size - place * self.block)
        return left

    def take(self, rows: Rows) -> tuple[Array, NDArray[np.int64]]:
        """Return some rows one after the other in one array, and their lengths."""
        corpus, place = self._places(rows)
        size, first = np.array(self._sizes, dtype=np.int64)[corpus], self._starts[corpus]
        lengths = self.tokens_in(rows) + self._beyond
        start = (self._shifts[corpus] + place * self.block) % np.maximum(size, 1)
        end = np.minimum(start + lengths, size)
        around = start + lengths - end  # what wraps around to the corpus's beginning
        starts = np.stack([first + start, first], axis=1).reshape(-1)
        ends = np.stack([first + end, first + around], axis=1).reshape(-1)
        if isinstance(self._values, FileArray):
            return self._values.rows(starts, ends), lengths
        return take_rows(self._values, starts, ends)[0], lengths

    def __getitem__(self, row: int) -> Array:
        return self.take(np.array([row], dtype=np.int64))[0]

    def rows_of(self, rows: Rows) -> list[Array]:
        """Return some rows, each by itself."""
        tokens, lengths = self.take(rows)
        return [tokens[start:end] for start, end in pairwise([0, *np.cumsum(lengths).tolist()])]

    def _places(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which corpus each row is of, and which of its blocks."""
        corpus = np.searchsorted(self._first_rows[1:], rows, side="right")
        return corpus, rows - self._first_rows[corpus]


class BlockLengths:
    """The lengths of rows, counted as those of targets: where a model predicts the token after each, the first and the
    last take the places of start and end, and do not count."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, rows: Array | slice) -> NDArray[np.int64]:
        """Return the lengths of these rows."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            assert step == 1
            rows = np.arange(start, max(start, stop), dtype=np.int64)
        return self._blocks.tokens_in(rows) - self._blocks._beyond


STREAM = "tokens.bin"
"""All tokens of a split of plain text, an end token before every document."""
GROUPS = "groups.bin"
"""The number of its example (or document) for each row of examples."""
TEXT_ROWS = 4096
"""Texts read at a time."""


class CorpusRows(NamedTuple):
    """Consecutive rows of a split that come from one corpus."""

    size: int
    weight: float = 1.0
    """How often each row is seen in an epoch."""


class Split:
    """One split of a prepared corpus: rows with a source and a target length, of one or several corpora."""

    def __init__(self, source_lengths: Any, target_lengths: Any, corpora: Sequence[CorpusRows] | None = None) -> None:
        assert len(source_lengths) == len(target_lengths)
        self.source_lengths = source_lengths
        """Source tokens per row; indexed with an array of rows or a range of them."""
        self.target_lengths = target_lengths
        """Target tokens per row."""
        self.corpora = (CorpusRows(len(source_lengths)),) if corpora is None else tuple(corpora)
        """The corpora that the rows come from, one after the other."""

    def __len__(self) -> int:
        return len(self.source_lengths)

    def of_epoch(self, seed: int, epoch: int) -> Self:
        """Return the rows as they are read in an epoch."""
        return self


ALIGNMENT = "alignment"
"""The column with the links of aligned pairs."""


class PairStore(Split):
    """Pairs of token rows with their text. Tokens are as the tokenizer gave them, without start and end.

    Aligned pairs have links too: target token, source token, target token, …, by their places in the rows.
    """

    def __init__(
        self,
        sources: Ragged,
        targets: Ragged,
        source_texts: Ragged,
        target_texts: Ragged,
        corpora: Sequence[CorpusRows] | None = None,
        alignments: Ragged | None = None,
    ) -> None:
        super().__init__(sources.lengths, targets.lengths, corpora)
        self.sources, self.targets, self.alignments = sources, targets, alignments
        self._texts = (source_texts, target_texts)

    @classmethod
    def open(cls, folder: Path, token_bytes: dict[str, Any], report: SplitReport) -> PairStore:
        """Open the files of a split; the report has the number of pairs of each corpus."""
        sides = [Ragged.open(folder, f"{side}.tokens", f"<u{token_bytes[side]}") for side in ("source", "target")]
        texts = [Ragged.open(folder, f"{side}.text", np.uint8) for side in ("source", "target")]
        alignments = None
        if ALIGNMENT in token_bytes and offsets_path(folder, ALIGNMENT).exists():  # training pairs alone have them
            alignments = Ragged.open(folder, ALIGNMENT, f"<u{token_bytes[ALIGNMENT]}")
        corpora = _corpora(folder, report, *sides, *texts, *([] if alignments is None else [alignments]))
        return cls(sides[0], sides[1], texts[0], texts[1], corpora, alignments)

    @classmethod
    def of(
        cls, source_tokens: list[list[int]], target_tokens: list[list[int]], links: list[list[int]] | None = None
    ) -> PairStore:
        """Hold pairs in memory, without text: rows made for one epoch, and tests."""
        nothing = Ragged.of([[] for _ in source_tokens], np.uint8)
        alignments = None if links is None else Ragged.of(links)
        return cls(Ragged.of(source_tokens), Ragged.of(target_tokens), nothing, nothing, alignments=alignments)

    @property
    def pairs(self) -> tuple[Ragged, Ragged]:
        """Sources and targets."""
        return self.sources, self.targets

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
        sources, targets = map(_strings, self._texts)
        yield from zip(sources, targets, strict=True)


class BlockStore(Split):
    """Blocks of plain text: sources are empty, and a target has the tokens of a block, without start and end around
    them, and for a language model one more."""

    def __init__(self, blocks: Blocks, weights: Sequence[float]) -> None:
        """`weights` are those of the corpora of the blocks."""
        nothing = np.broadcast_to(np.zeros(1, dtype=OFFSET), len(blocks) + 1)
        self.sources, self.targets = Ragged(np.zeros(0, dtype=np.uint8), nothing), blocks
        super().__init__(self.sources.lengths, blocks.lengths, list(map(CorpusRows, blocks.counts, weights)))

    @classmethod
    def open(cls, folder: Path, token_bytes: int, report: SplitReport, block_size: int, beyond: int) -> BlockStore:
        """Open the stream of a split, to be cut into blocks of `block_size` tokens and `beyond` more."""
        values = open_array(folder / STREAM, np.dtype(f"<u{token_bytes}"))
        sizes = [corpus.tokens or 0 for corpus in report.corpora or ()] or [report.target.tokens]
        if sum(sizes) != len(values):
            raise DataError(
                f"{folder / STREAM}: has another number of tokens than its report; prepare the corpus again"
            )
        weights = [corpus.weight for corpus in report.corpora or ()] or [1.0]
        return cls(Blocks(values, sizes, block_size, beyond), weights)

    @property
    def blocks(self) -> Blocks:
        """The blocks."""
        return self.targets

    def of_epoch(self, seed: int, epoch: int) -> Self:
        """Return the blocks of an epoch, which begin at other places in each."""
        return type(self)(self.targets.shifted(seed, epoch), [corpus.weight for corpus in self.corpora])


class ExampleRecord(NamedTuple):
    """One example of a text encoder as it was read. Which fields are used depends on the objective."""

    texts: tuple[str, ...]
    """One text or two; the words of a sentence; question and context."""
    labels: tuple[str, ...] = ()
    """The label of a text; one for each word."""
    answers: tuple[str, ...] = ()
    """The accepted answer texts."""

    def to_bytes(self) -> bytes:
        """Return it as a prepared corpus keeps it."""
        return json.dumps(self).encode()

    @classmethod
    def from_text(cls, text: str) -> ExampleRecord:
        """Read it back."""
        return cls(*map(tuple, json.loads(text)))


class ExampleStore(Split):
    """Examples of a text encoder: rows of tokens with their targets, and the examples that the rows are of.

    A long example has several rows. For masked language modelling a row is of a document, has no targets of its own
    (they are drawn in every epoch), and no example is kept.
    """

    def __init__(
        self,
        tokens: Ragged,
        targets: Ragged,
        groups: Array | FileArray,
        records: Ragged,
        corpora: Sequence[CorpusRows] | None = None,
    ) -> None:
        super().__init__(tokens.lengths, _AtLeastOne(targets.lengths), corpora)
        self.tokens, self.targets, self.groups = tokens, targets, groups
        self._records = records

    @classmethod
    def open(cls, folder: Path, token_bytes: dict[str, Any], report: SplitReport) -> ExampleStore:
        """Open the files of a split; the report has the number of rows of each corpus."""
        tokens, targets = (Ragged.open(folder, name, f"<u{token_bytes[name]}") for name in ("tokens", "targets"))
        groups, records = open_array(folder / GROUPS, OFFSET), Ragged.open(folder, "examples", np.uint8)
        return cls(tokens, targets, groups, records, _corpora(folder, report, tokens, targets, groups))

    @classmethod
    def of(cls, tokens: list[list[int]], targets: list[list[int]], groups: Sequence[int] | None = None) -> ExampleStore:
        """Hold rows in memory, without their examples."""
        numbers = np.array(range(len(tokens)) if groups is None else groups, dtype=OFFSET)
        return cls(Ragged.of(tokens), Ragged.of(targets), numbers, Ragged.of([], np.uint8))

    def examples(self) -> Iterator[ExampleRecord]:
        """Yield the examples, in order."""
        return map(ExampleRecord.from_text, _strings(self._records))


class _AtLeastOne:
    """Lengths of targets, where every row counts as having one."""

    def __init__(self, lengths: Lengths) -> None:
        self._lengths = lengths

    def __len__(self) -> int:
        return len(self._lengths)

    def __getitem__(self, rows: Array | slice) -> NDArray[np.int64]:
        return np.maximum(self._lengths[rows], 1)


def _corpora(folder: Path, report: SplitReport, *columns: Ragged | Array | FileArray) -> list[CorpusRows]:
    """Return the corpora that the rows of these columns come from, as the report counts them."""
    corpora = [CorpusRows(_num_rows(corpus), corpus.weight) for corpus in report.corpora or ()]
    corpora = corpora or [CorpusRows(report.num_rows)]
    if {len(column) for column in columns} != {sum(corpus.size for corpus in corpora)}:
        raise DataError(f"{folder}: its files have different numbers of pairs; prepare the corpus again")
    return corpora


def _num_rows(report: CorpusReport) -> int:
    return report.kept if report.rows is None else report.rows


def _strings(column: Ragged) -> Iterator[str]:
    """Yield the rows of a column as text, some thousand read at a time."""
    for start in range(0, len(column), TEXT_ROWS):
        content, lengths = column.stretch(start, min(start + TEXT_ROWS, len(column)))
        block = content.tobytes()
        for begin, end in pairwise([0, *np.cumsum(lengths).tolist()]):
            yield block[begin:end].decode("utf-8")
