"""Preparation of plain text as streams of tokens: read once, hold out the end, train the tokenizer, tokenise.

Span corruption (T5) has the same preparation: its pairs are made of the blocks of these streams.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from transduce.data.audit import Progress
from transduce.data.prepared import GivenTokenizers, Preparation
from transduce.data.ragged import RaggedWriter, read_strings
from transduce.data.report import CorpusCounter, SideStatistics, SplitReport, TextStatistics, split_report
from transduce.data.settings import PlainTextConfig
from transduce.data.split import token_bytes
from transduce.data.store import STREAM
from transduce.errors import DataError, SettingsError
from transduce.text.corpus import DocumentPart, TextFile, encode_pieces, read_documents
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.extension import extend
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer

MAX_HELD_OUT = 2**20
"""Maximum characters of a corpus that are held out."""
TOKENIZER_CHARACTERS = 2**27
"""Approximate number of characters to train a tokenizer on; of more text, every n-th piece is taken."""
CHUNK_CHARACTERS, CHUNK_PIECES = 2**18, 256
"""Approximate characters and pieces that are tokenised together; a character takes about 100 bytes in the library."""
READ_PIECES = 64
"""Pieces that are read back together."""


class TextPreparation(Preparation[PlainTextConfig]):
    """The preparation of plain text."""

    noun = "document"

    def __init__(
        self,
        data: PlainTextConfig,
        config: TokenizerConfig,
        progress: Progress | None = None,
        given: GivenTokenizers | None = None,
    ) -> None:
        if not config.joint:
            raise SettingsError("tokenizer.joint: plain text has one side and needs one tokenizer; leave it out")
        super().__init__(data, config, progress, given)
        self.audited: dict[str, list[_AuditedText]] = {}
        self.fraction = 0.0
        """Fraction of the training text that is held out."""

    def audit(self, split: str) -> None:
        self.audited[split] = [
            _AuditedText(self.work / split / str(at), file) for at, file in enumerate(self.data.of_split(split))
        ]
        for corpus in self.audited[split]:
            corpus.audit(self.progress)
        if not any(corpus.characters for corpus in self.audited[split]):
            raise DataError(f"{self.audited[split][0].file.name}: there is no text in it; check the {split} corpus")

    def select(self) -> None:
        self.fraction = 0.0 if self.data.validation is not None else self.data.validation_fraction

    def train_tokenizers(self) -> tuple[tuple[AnyTokenizer, AnyTokenizer], int]:
        corpora = self.audited["train"]
        num_documents = sum(corpus.documents for corpus in corpora)
        every = max(1, sum(corpus.characters for corpus in corpora) // TOKENIZER_CHARACTERS)
        texts = (piece.text for corpus in corpora for piece, held in corpus.divided(self.fraction) if not held)
        some = islice(texts, 0, None, every)
        given = None if self.given is None else self.given.target
        if given is not None and self.config.extend is None:
            return (given, given), num_documents
        self.progress("training the tokenizer", num_documents)
        if given is not None and self.config.extend is not None:
            tokenizer: AnyTokenizer = extend(given, some, self.config.extend, self.config.min_frequency)
        else:
            tokenizer = train_tokenizer(self.config.kinds[1], some, self.config)
        return (tokenizer, tokenizer), num_documents

    def tokenise(self, split: str, source: AnyTokenizer, target: AnyTokenizer) -> dict[str, SplitReport]:
        fraction = self.fraction if split == "train" else 0.0
        writer = _StreamWriter(self.folder / split, target, self.progress)
        for corpus, counter in zip(self.audited[split], self.counters[split], strict=True):
            kept, tokens = writer.write(piece for piece, held in corpus.divided(fraction) if not held)
            counter.corpus, counter.tokens = corpus.file.name, tokens
            counter.read, counter.kept = corpus.documents + corpus.blank, kept
            counter.held_out = corpus.documents - kept
            if corpus.blank:
                counter.count("blank", [], dropped=corpus.blank)
        reports = {split: writer.report(self.counters[split])}
        return reports | (self._hold_out(target) if fraction else {})

    def _hold_out(self, tokenizer: AnyTokenizer) -> dict[str, SplitReport]:
        """Tokenise what is held out of the training corpora, one after the other."""
        writer = _StreamWriter(self.folder / "validation", tokenizer)
        for corpus in self.audited["train"]:
            writer.write(piece for piece, held in corpus.divided(self.fraction) if held)
        if not writer.tokens:
            (writer.folder / STREAM).unlink()
            writer.folder.rmdir()
            return {}
        return {"validation": writer.report([CorpusCounter(read=writer.documents, kept=writer.documents)])}


@dataclass
class _AuditedText:
    """One corpus between the two passes: its pieces on disk, and its counts."""

    folder: Path
    file: TextFile
    pieces: int = 0
    documents: int = 0
    blank: int = 0
    """Blank lines, where lines are documents."""
    characters: int = 0
    last_begins: int = 0
    """Characters before the last document."""

    def audit(self, progress: Progress) -> None:
        """Read the file once and write its pieces."""
        self.folder.mkdir(parents=True)
        begins = (self.folder / "begins").open("wb")
        with begins, RaggedWriter(self.folder, "pieces", np.uint8) as writer:
            for chunk in _chunks(self._not_blank()):
                writer.append_bytes([piece.text.encode() for piece in chunk])
                begins.write(bytes(piece.begins for piece in chunk))
                self.pieces += len(chunk)
                for piece in chunk:
                    self.documents += piece.begins
                    self.last_begins = self.characters if piece.begins else self.last_begins
                    self.characters += len(piece.text)
                progress(f"reading {self.file.name}", self.documents)

    def _not_blank(self) -> Iterator[DocumentPart]:
        for piece in read_documents(self.file):
            if piece.begins and not piece.text.strip() and self.file.document == "line":
                self.blank += 1
            else:
                yield piece

    def read(self) -> Iterator[DocumentPart]:
        """Yield the pieces again."""
        for start in range(0, self.pieces, READ_PIECES):
            stop = min(start + READ_PIECES, self.pieces)
            begins = np.fromfile(self.folder / "begins", np.uint8, count=stop - start, offset=start)
            yield from map(DocumentPart, read_strings(self.folder, "pieces", start, stop), begins.astype(bool).tolist())

    def divided(self, fraction: float) -> Iterator[tuple[DocumentPart, bool]]:
        """Yield the pieces, each with whether it is held out: the documents at the end that fit the fraction; where the
        last one alone is larger, exactly the fraction, from within it."""
        first = self.characters - min(MAX_HELD_OUT, math.ceil(fraction * self.characters))
        seen, held = 0, False
        for piece in self.read():
            before, seen = seen, seen + len(piece.text)
            if first <= self.last_begins:
                held = held or (before >= first and piece.begins)
                yield piece, held
            elif before < first < seen:
                yield DocumentPart(piece.text[: first - before], piece.begins), False
                yield DocumentPart(piece.text[first - before :]), True
            else:
                yield DocumentPart(piece.text, piece.begins or before == first), before >= first


@dataclass
class _StreamWriter:
    """Writes the tokens of one split as one stream, and counts them."""

    folder: Path
    tokenizer: AnyTokenizer
    progress: Progress = lambda stage, count: None
    documents: int = 0
    tokens: int = 0
    unknown: int = 0
    text: TextStatistics = field(default_factory=TextStatistics)

    def write(self, pieces: Iterable[DocumentPart]) -> tuple[int, int]:
        """Append some pieces; return how many documents and tokens they are."""
        before = self.documents, self.tokens
        self.folder.mkdir(exist_ok=True)
        dtype = f"<u{token_bytes(self.tokenizer.size)}"
        with (self.folder / STREAM).open("ab") as stream:
            for chunk in _chunks(pieces):
                for piece, tokens in zip(chunk, encode_pieces(self.tokenizer, chunk), strict=True):
                    row = [*([self.tokenizer.end] if piece.begins else []), *tokens]
                    stream.write(np.array(row, dtype=dtype).tobytes())
                    self.documents += piece.begins
                    self.tokens += len(row)
                    self.unknown += self.tokenizer.count_unknown(tokens)
                self._count([piece.text for piece in chunk])
                self.progress(f"tokenising {self.folder.name}", self.documents)
        return self.documents - before[0], self.tokens - before[1]

    def _count(self, texts: Sequence[str]) -> None:
        self.text = TextStatistics(
            characters=self.text.characters + sum(map(len, texts)),
            bytes=self.text.bytes + sum(len(text.encode()) for text in texts),
            words=self.text.words + sum(len(text.split()) for text in texts),
        )

    def report(self, counters: Sequence[CorpusCounter]) -> SplitReport:
        """Return the report of the split, whose corpora were counted by these."""
        unknown = None if self.tokenizer.unknown is None else self.unknown
        target = SideStatistics(tokens=self.tokens, unknown=unknown)
        return split_report(counters, SideStatistics(tokens=0), target, self.text)


def _chunks(pieces: Iterable[DocumentPart]) -> Iterator[list[DocumentPart]]:
    chunk: list[DocumentPart] = []
    characters = 0
    for piece in pieces:
        chunk.append(piece)
        characters += len(piece.text)
        if len(chunk) == CHUNK_PIECES or characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk
