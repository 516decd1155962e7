"""A prepared corpus as training reads it: memory-mapped ids, the text beside them, and the tokenizers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transduce.config import Table
from transduce.data.blocks import BlockLengths, Blocks
from transduce.data.config import DataConfig
from transduce.data.corruption import longest_corrupted
from transduce.data.folder import read_json, read_manifest
from transduce.data.mixture import Part
from transduce.data.ragged import OFFSET, Lengths, Ragged, open_array
from transduce.data.reading.config import ReadingConfig
from transduce.data.report import CorpusReport, Report, SplitReport
from transduce.errors import DataError, SettingsError
from transduce.storage.layout import REPORT, SOURCE_TOKENIZER, TARGET_TOKENIZER, TOKENIZER
from transduce.text.tokenizer import AnyTokenizer, load_tokenizer
from transduce.text.tokenizer.tokenizer import TokenizerConfig

SPLITS = ("train", "validation", "test", "extra_validation")
STREAM = "tokens.bin"
"""All tokens of a split of plain text, an end token before every document."""
USUAL_BLOCK = 256
"""Tokens that a model without a limit of its own reads at once."""
TEXT_ROWS = 4096
"""Texts read at a time."""


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


@dataclass(frozen=True)
class Prepared:
    """A prepared corpus, opened."""

    folder: Path
    data: DataConfig | ReadingConfig
    """The settings it was made by."""
    tokenizer: TokenizerConfig
    train: PairStore
    validation: PairStore | None
    test: PairStore | None
    extra_validation: PairStore | None
    """Pairs of what the model could do before."""
    source_tokenizer: AnyTokenizer
    target_tokenizer: AnyTokenizer
    """The same object as the source's when one tokenizer serves both."""
    report: Report

    @property
    def longest(self) -> tuple[int, int]:
        """Tokens of the longest source and target that training meets, without start and end."""
        if not isinstance(self.train.targets, Blocks):
            return self.report.train.source.longest, self.report.train.target.longest
        block = self.train.targets.block
        return longest_corrupted(block) if self.data.corrupt else (0, block - 1)


def read_data_table(table: Table, where: str) -> DataConfig | ReadingConfig:
    """Read a recipe's [data]: pairs or plain text, or what a reader learns from where it names a task."""
    if "task" not in table:
        return DataConfig.from_table(table, where)
    if "extra_validation" in table:
        raise SettingsError(
            f"{where}: pairs and plain text can be watched while a model learns on, a reader's examples cannot; leave "
            "out extra_validation, and see afterwards with `transduce evaluate` what the new run says of the old examples"
        )
    return ReadingConfig.from_table(table, where)


def _open_blocks(folder: Path, dtype: str, report: SplitReport, data: DataConfig, block: int) -> PairStore:
    """Open the stream of a split of plain text, to be cut into blocks."""
    values = open_array(folder / STREAM, np.dtype(dtype))
    sizes = [corpus.tokens or 0 for corpus in report.corpora or ()] or [report.target.tokens]
    if sum(sizes) != len(values):
        raise DataError(f"{folder / STREAM}: has not the tokens that the report counts; prepare the corpus again")
    blocks = Blocks(values, sizes, block, beyond=0 if data.corrupt else 1)
    return PairStore.of_blocks(blocks, [corpus.weight for corpus in report.corpora or ()] or [1.0])


def load_prepared(folder: Path, thorough: bool = False, block: int | None = None) -> Prepared:
    """Open what `prepare` wrote; `thorough` checks every byte against the manifest, not only the small files.

    Plain text is cut into blocks of `block` tokens, as its settings say or 256 unless given.
    """
    manifest = read_manifest(folder, thorough)
    if TOKENIZER in manifest.files:  # what stands there besides is not ours
        source_tokenizer, target_tokenizer = load_tokenizer(folder / TOKENIZER).sides()
    else:
        source_tokenizer = load_tokenizer(folder / SOURCE_TOKENIZER)
        target_tokenizer = load_tokenizer(folder / TARGET_TOKENIZER)
    splits = {name: folder / name for name in SPLITS if any(Path(file).parts[0] == name for file in manifest.files)}
    if "train" not in splits:
        raise DataError(f"{folder}: has no training split; prepare the corpus again")
    where = str(folder)
    try:
        data = read_data_table(manifest.settings.get("data", {}), where)
        tokenizer = TokenizerConfig.from_table(manifest.settings.get("tokenizer", {}), where)
        report = Report.from_table(read_json(folder / REPORT), where)
    except SettingsError as error:
        raise DataError(f"{error}; it was prepared by another version: prepare the corpus again") from None
    reports = report.splits()
    if not splits.keys() <= reports.keys():
        raise DataError(f"{folder / REPORT}: speaks of other splits than there are; prepare the corpus again")
    if isinstance(data, DataConfig) and data.is_text:
        dtype, size = f"<u{manifest.token_bytes['target']}", block or data.block_size or USUAL_BLOCK
        stores = {name: _open_blocks(path, dtype, reports[name], data, size) for name, path in splits.items()}
    else:
        stores = {
            name: PairStore.open(path, dict(manifest.token_bytes), reports[name]) for name, path in splits.items()
        }
    return Prepared(
        folder=folder,
        data=data,
        tokenizer=tokenizer,
        train=stores["train"],
        validation=stores.get("validation"),
        test=stores.get("test"),
        extra_validation=stores.get("extra_validation"),
        source_tokenizer=source_tokenizer,
        target_tokenizer=target_tokenizer,
        report=report,
    )
