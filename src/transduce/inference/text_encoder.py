"""Texts in, what a reader makes of them out: labels, tags, answers, missing words, vectors, and where it looked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Self, TypeVar

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from transduce.config import Table
from transduce.errors import DataError, SettingsError
from transduce.inference.text_encoding import Found, Guess, ReadingEngine, Said
from transduce.inspection.maps import AttentionMaps
from transduce.inspection.record import hops_of, self_attention_of
from transduce.model_folder import ModelFolder
from transduce.storage.atomic import atomic_file
from transduce.text.encoder_input import split_context
from transduce.text.lines import shown

T = TypeVar("T")
Text = str | Sequence[str]
"""A text; a pair of texts; the words of a sentence."""

TASKS = {"labels": "classify", "tags": "tag", "span": "answer", "language": "mask", "none": "none"}
"""What a reader was trained for, by its head."""


class Tagged(NamedTuple):
    """A word with its label."""

    word: str
    label: str
    probability: float


Answer = Said | list[Tagged] | Found | list[list[Guess]]
"""What is said of a text: its label, a label per word, an answer with its place, or guesses for every `<mask>`."""


class TextEncoder:
    """Asks one reader. What it can say depends on the head it was trained with."""

    def __init__(self, contents: ModelFolder) -> None:
        self.model, self.notes = contents.encoder, contents.notes
        self.tokenizer = contents.source_tokenizer
        self.head = str(getattr(contents.config, "head", "none"))
        self.task = TASKS[self.head]
        told_stories = (self.notes.get("columns") or {}).get("format") == "babi"
        self.reads_stories = self.model.attends_to_facts or (self.model.max_texts is None and told_stories)
        """Whether a text is a story: facts, and a question as the last sentence."""
        labels = self.notes.get("labels") or [f"LABEL_{n}" for n in range(getattr(contents.config, "num_labels", 0))]
        self.engine = ReadingEngine(
            self.model,
            self.tokenizer,
            labels,
            self.notes.get("max_length"),
            self.notes.get("stride") or 64,
            bool(self.notes.get("allow_no_answer")),
        )

    @property
    def cut(self) -> int:
        """How many texts so far were too long and lost a part."""
        return self.engine.cut

    @property
    def lost(self) -> str:
        """What those texts lost."""
        parts = {"tags": "the end of a word", "span": "the end of their question"}
        return "their oldest facts" if self.reads_stories else parts.get(self.head, "their end")

    def read(self, texts: Sequence[Text]) -> list[Answer]:
        """Say what the head says: of texts or pairs (labels), of sentences, as text or as words (tags), of pairs of
        question and context (span), of texts with `<mask>` (language)."""
        if self.head == "labels":
            return list(self.engine.label([self._several(text) for text in texts]))
        if self.head == "tags":
            sentences = [text.split() if isinstance(text, str) else list(text) for text in texts]
            return [_tagged(*pair) for pair in zip(sentences, self.engine.tag(sentences), strict=True)]
        if self.head == "span":
            return list(self.engine.answer([_question(text) for text in texts]))
        if self.head == "language":
            return [self.fill(text if isinstance(text, str) else " ".join(text)) for text in texts]
        raise SettingsError("this reader has no head and says nothing; take its vectors with `transduce embed`")

    def embed(self, texts: Sequence[Text], pool: str = "mean", normalise: bool = False) -> NDArray[np.float32]:
        """Return a vector for each text or pair.  -> (texts, D).

        mean: of all its tokens; first: the start token's; pooled: what the model itself makes of that.
        """
        return self.engine.embed([self._several(text) for text in texts], pool, normalise)

    def fill(self, text: str, top: int = 5) -> list[list[Guess]]:
        """Return what could stand at every `<mask>` of a text, the likeliest first."""
        return self.engine.fill(text, top)

    def attention(self, text: Text) -> AttentionMaps:
        """Read one text or pair and return where every head looked; of a story, what each hop looked at."""
        texts = self._several(text)
        inputs = self.engine.tensors([self.engine.row(texts)])
        said = ""
        if self.head in ("labels", "tags", "span"):
            said = as_text(self.read([texts[0] if len(texts) == 1 else texts])[0])
        if self.model.attends_to_facts:
            return hops_of(self.model, inputs, texts, said)
        return self_attention_of(
            self.model, inputs, self.tokenizer.pieces(inputs[0][0].tolist()), " | ".join(texts), said
        )

    def _several(self, text: Text) -> list[str]:
        """One text or a pair; for a reader of stories the facts, then the question."""
        if not self.reads_stories:
            return _pair(text)
        story = split_context(text if isinstance(text, str) else "\t".join(text))
        if not story:
            raise DataError("a story has facts and a question behind them; there is none here")
        return story


def of_lines(ask: Callable[[list[Text]], T], texts: Mapping[int, Text], file: str) -> T:
    """Ask about the texts in some lines of a file; of one that cannot be read, say in which line it stands."""
    try:
        return ask(list(texts.values()))
    except DataError:
        for line, text in texts.items():
            try:
                ask([text])
            except DataError as error:
                raise DataError(f"{shown(file)}:{line}: {error}") from None
        raise


def as_text(answer: Answer) -> str:
    """One line that says an answer."""
    if isinstance(answer, Found | Said):
        return answer.text if isinstance(answer, Found) else answer.label
    if answer and isinstance(answer[0], Tagged):
        return " ".join(word.label for word in answer if isinstance(word, Tagged))
    return " ".join(guesses[0].piece for guesses in answer if isinstance(guesses, list))


def as_json(answer: Answer) -> Table | list[Any]:
    """An answer as plain values."""
    if isinstance(answer, Found | Said):
        return answer._asdict()
    return [
        one._asdict() if isinstance(one, Tagged) else [guess._asdict() for guess in one if isinstance(guess, Guess)]
        for one in answer
    ]


def _pair(text: Text) -> list[str]:
    texts = [text] if isinstance(text, str) else list(text)
    if len(texts) not in (1, 2):
        raise SettingsError(f"a reader reads one text or two side by side, not {len(texts)}")
    return texts


def _question(text: Text) -> tuple[str, str]:
    if isinstance(text, str) or len(text) != 2:
        raise SettingsError("to find an answer, give a question and the text that it stands in: (question, context)")
    return text[0], text[1]


def _tagged(words: Sequence[str], said: Sequence[Said]) -> list[Tagged]:
    return [Tagged(word, *one) for word, one in zip(words, said, strict=True)]


# Vectors into an `.npy` file, row after row: how many there will be is known at the end only.

TOGETHER = 1024
"""Lines that are read together: similar lengths are then put next to each other."""


def windows_of(lines: Iterable[T]) -> Iterator[list[T]]:
    """Yield lines a window at a time."""
    rest = iter(lines)
    while window := list(islice(rest, TOGETHER)):
        yield window


class VectorFile:
    """Writes float32 rows; the file is there, whole, when the context ends without an error."""

    def __init__(self, path: Path, width: int) -> None:
        self.path, self.width, self.count = path, width, 0

    def append(self, rows: NDArray[np.float32]) -> None:
        """Add rows."""
        self._file.write(np.ascontiguousarray(rows, dtype="<f4").tobytes())
        self.count += len(rows)

    def _header(self) -> None:
        """numpy leaves room in a header for its first axis to grow, so that one can be written over another."""
        npy.write_array_header_1_0(
            self._file, {"descr": "<f4", "fortran_order": False, "shape": (self.count, self.width)}
        )

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        temporary = self._stack.enter_context(atomic_file(self.path))
        self._file: BinaryIO = self._stack.enter_context(temporary.open("wb"))
        self._header()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self._file.seek(0)
            self._header()
        self._stack.__exit__(kind, error, at)
