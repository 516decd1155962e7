"""Plain text in, streams of tokens out: read once, the end of it held out, the tokenizer learnt, tokenised.

As for pairs, nothing grows with the corpus but files, and two preparations give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from transduce.data.audit import Progress
from transduce.data.config import PlainTextConfig
from transduce.data.ragged import RaggedWriter, read_strings
from transduce.data.report import CorpusReport, Finding, Report, Side, SplitReport, TextCount
from transduce.data.split import token_bytes
from transduce.data.store import STREAM
from transduce.errors import DataError, SettingsError
from transduce.storage.layout import TOKENIZER
from transduce.text.plain import Piece, TextFile, encode_pieces, read_documents
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.extension import extend
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer

MOST_HELD_OUT = 2**20
"""Characters of a corpus that are held out at most."""
TOKENIZER_CHARACTERS = 2**27
"""Characters that a tokenizer learns from, about; of more text, every so many pieces."""
CHUNK_CHARACTERS, CHUNK_PIECES = 2**18, 256
"""Text and pieces that are tokenised together, about; what the library returns for a character takes some 100 bytes."""

READ_PIECES = 64
"""Pieces that are read back together."""


@dataclass
class _Corpus:
    """One corpus on disk: its pieces one after the other, and what was counted."""

    folder: Path
    file: TextFile
    pieces: int = 0
    documents: int = 0
    empty: int = 0
    """Blank lines, where lines are documents."""
    characters: int = 0
    last_begins: int = 0
    """Characters before the last document."""

    def spool(self, progress: Progress) -> None:
        """Read the file once and write its pieces."""
        self.folder.mkdir(parents=True)
        begins = (self.folder / "begins").open("wb")
        with begins, RaggedWriter(self.folder, "pieces", np.uint8) as writer:
            for chunk in _chunks(self._wanted()):
                writer.append_bytes([piece.text.encode() for piece in chunk])
                begins.write(bytes(piece.begins for piece in chunk))
                self.pieces += len(chunk)
                for piece in chunk:
                    self.documents += piece.begins
                    self.last_begins = self.characters if piece.begins else self.last_begins
                    self.characters += len(piece.text)
                progress(f"reading {self.file.name}", self.documents)

    def _wanted(self) -> Iterator[Piece]:
        for piece in read_documents(self.file):
            if piece.begins and not piece.text.strip() and self.file.document == "line":
                self.empty += 1
            else:
                yield piece

    def read(self) -> Iterator[Piece]:
        """Yield the pieces again."""
        for start in range(0, self.pieces, READ_PIECES):
            stop = min(start + READ_PIECES, self.pieces)
            begins = np.fromfile(self.folder / "begins", np.uint8, count=stop - start, offset=start)
            yield from map(Piece, read_strings(self.folder, "pieces", start, stop), begins.astype(bool).tolist())

    def parts(self, share: float) -> Iterator[tuple[Piece, bool]]:
        """Yield the pieces, each with whether it is held out: the documents at the end that fit the share; where the
        last one alone is larger, exactly the share, from within it."""
        first = self.characters - min(MOST_HELD_OUT, math.ceil(share * self.characters))
        seen, held = 0, False
        for piece in self.read():
            before, seen = seen, seen + len(piece.text)
            if first <= self.last_begins:
                held = held or (before >= first and piece.begins)
                yield piece, held
            elif before < first < seen:
                yield Piece(piece.text[: first - before], piece.begins), False
                yield Piece(piece.text[first - before :]), True
            else:
                yield Piece(piece.text, piece.begins or before == first), before >= first


@dataclass
class _Split:
    """The stream of one split while it is written."""

    folder: Path
    tokenizer: AnyTokenizer
    progress: Progress = lambda stage, count: None
    documents: int = 0
    tokens: int = 0
    unknown: int = 0
    text: TextCount = field(default_factory=TextCount)

    def write(self, pieces: Iterable[Piece]) -> tuple[int, int]:
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
        self.text = TextCount(
            characters=self.text.characters + sum(map(len, texts)),
            bytes=self.text.bytes + sum(len(text.encode()) for text in texts),
            words=self.text.words + sum(len(text.split()) for text in texts),
        )

    def report(self, corpora: Sequence[CorpusReport], read: int, held_out: int) -> SplitReport:
        """Return what was counted."""
        empty = sum(corpus.dropped.get("blank", 0) for corpus in corpora)
        is_mixed = len(corpora) > 1 or any(corpus.weight != 1 for corpus in corpora)
        unknown = None if self.tokenizer.unknown is None else self.unknown
        return SplitReport(
            read=read,
            kept=self.documents,
            held_out=held_out,
            findings={"blank": Finding(dropped=empty)} if empty else {},
            source=Side(tokens=0),
            target=Side(tokens=self.tokens, unknown=unknown),
            corpora=tuple(corpora) if is_mixed else None,
            text=self.text,
        )


def prepare_text(
    data: PlainTextConfig,
    config: TokenizerConfig,
    folder: Path,
    work: Path,
    progress: Progress,
    given: AnyTokenizer | None = None,
) -> Report:
    """Write the streams and the tokenizer of plain text into `folder` and report what was found.

    `given` is a tokenizer that is there already, to be used as it is or extended.
    """
    if not config.joint:
        raise SettingsError("tokenizer.joint: plain text has one side and needs one tokenizer; leave it out")
    splits = {name: data.of_split(name) for name in ("test", "extra_validation", "validation", "train")}
    corpora = {
        name: [_Corpus(work / name / str(at), file) for at, file in enumerate(files) if isinstance(file, TextFile)]
        for name, files in splits.items()
    }
    for name, several in corpora.items():
        for corpus in several:
            corpus.spool(progress)
        if several and not any(corpus.characters for corpus in several):
            raise DataError(f"{several[0].file.name}: there is no text in it; check the {name} corpus")
    share = 0.0 if data.validation is not None else data.validation_fraction
    tokenizer = _learn(corpora["train"], share, config, progress, given)
    (folder / TOKENIZER).write_text(tokenizer.to_json(), encoding="utf-8")
    reports = {}
    for name, several in corpora.items():
        if several and name != "train":
            reports[name] = _write(_Split(folder / name, tokenizer, progress), several, 0.0)
    reports["train"] = _write(_Split(folder / "train", tokenizer, progress), corpora["train"], share)
    if share and (held := _hold_out(folder / "validation", corpora["train"], tokenizer, share)) is not None:
        reports["validation"] = held
    documents = sum(corpus.documents for corpus in corpora["train"])
    return Report(
        train=reports["train"],
        validation=reports.get("validation"),
        test=reports.get("test"),
        extra_validation=reports.get("extra_validation"),
        source_vocabulary=tokenizer.size,
        target_vocabulary=tokenizer.size,
        joint=True,
        tokenizer_pairs=documents,
    )


def _learn(
    corpora: Sequence[_Corpus], share: float, config: TokenizerConfig, progress: Progress, given: AnyTokenizer | None
) -> AnyTokenizer:
    """Learn the tokenizer from the text that is not held out, or what is to be added to one that is given."""
    if given is not None and config.extend is None:
        return given
    every = max(1, sum(corpus.characters for corpus in corpora) // TOKENIZER_CHARACTERS)
    progress("learning the tokenizer", sum(corpus.documents for corpus in corpora))
    texts = (piece.text for corpus in corpora for piece, held in corpus.parts(share) if not held)
    some = islice(texts, 0, None, every)
    if given is not None and config.extend is not None:
        return extend(given, some, config.extend, config.min_frequency)
    return train_tokenizer(config.kinds[1], some, config)


def _write(split: _Split, corpora: Sequence[_Corpus], share: float) -> SplitReport:
    """Tokenise the corpora of a split, but for what is held out of them."""
    found = []
    for corpus in corpora:
        documents, tokens = split.write(piece for piece, held in corpus.parts(share) if not held)
        found.append(
            CorpusReport(
                name=corpus.file.name,
                weight=1.0 if corpus.file.weight is None else corpus.file.weight,
                read=corpus.documents + corpus.empty,
                kept=documents,
                held_out=corpus.documents - documents,
                dropped={"blank": corpus.empty} if corpus.empty else {},
                tokens=tokens,
            )
        )
    if not split.tokens:
        raise DataError("all of the text would be held out for validation; give more of it, or a validation corpus")
    return split.report(found, sum(each.read for each in found), sum(each.held_out for each in found))


def _hold_out(folder: Path, corpora: Sequence[_Corpus], tokenizer: AnyTokenizer, share: float) -> SplitReport | None:
    """Tokenise what is held out of the training corpora, one after the other."""
    split = _Split(folder, tokenizer)
    for corpus in corpora:
        split.write(piece for piece, held in corpus.parts(share) if held)
    if not split.tokens:
        (folder / STREAM).unlink()
        folder.rmdir()
        return None
    return split.report([], split.documents, 0)


def _chunks(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    chunk: list[Piece] = []
    characters = 0
    for piece in pieces:
        chunk.append(piece)
        characters += len(piece.text)
        if len(chunk) == CHUNK_PIECES or characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk
