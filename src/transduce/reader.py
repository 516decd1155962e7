"""Texts in, what a reader makes of them out: labels, tags, answers, missing words, vectors, and where it looked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from transduce.checkpoint import ModelFolder
from transduce.config import Table
from transduce.decoding.reading import Found, Guess, ReadingEngine, Said
from transduce.errors import DataError, SettingsError
from transduce.inspection.maps import AttentionMaps
from transduce.inspection.record import hops_of, self_attention_of
from transduce.text.line import shown
from transduce.text.reading_row import story_of

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


class ReaderModel:
    """Asks one reader. What it can say depends on the head it was trained with."""

    def __init__(self, contents: ModelFolder) -> None:
        self.model, self.notes = contents.reader, contents.notes
        self.tokenizer = contents.source_tokenizer
        self.head = str(getattr(contents.config, "head", "none"))
        self.task = TASKS[self.head]
        told_stories = (self.notes.get("columns") or {}).get("format") == "babi"
        self.reads_stories = self.model.looks_at_facts or (self.model.max_texts is None and told_stories)
        """Whether a text is a story: facts, and a question as the last sentence."""
        labels = self.notes.get("labels") or [f"LABEL_{n}" for n in range(getattr(contents.config, "num_labels", 0))]
        self.engine = ReadingEngine(
            self.model,
            self.tokenizer,
            labels,
            self.notes.get("max_length"),
            self.notes.get("stride") or 64,
            bool(self.notes.get("no_answer")),
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
        if self.model.looks_at_facts:
            return hops_of(self.model, inputs, texts, said)
        return self_attention_of(
            self.model, inputs, self.tokenizer.pieces(inputs[0][0].tolist()), " | ".join(texts), said
        )

    def _several(self, text: Text) -> list[str]:
        """One text or a pair; for a reader of stories the facts, then the question."""
        if not self.reads_stories:
            return _pair(text)
        story = story_of(text if isinstance(text, str) else "\t".join(text))
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
