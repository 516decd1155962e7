"""Text in, predictions out: a text encoder with its head gives labels, tags, answers, masked tokens or vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Self, TypeVar

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from transduce.config import Table
from transduce.errors import DataError, SettingsError
from transduce.inference.encoder_engine import AnswerSpan, EncoderEngine, LabelPrediction, MaskFill
from transduce.inference.pretrained import Pretrained, checked_contents
from transduce.inspection.maps import AttentionMaps
from transduce.inspection.record import hops_of, self_attention_of
from transduce.model_folder import ModelFolder
from transduce.nn.cpu.packed import Precision
from transduce.storage.atomic import atomic_file
from transduce.text.argument import checked_text, checked_texts, is_several
from transduce.text.encoder_input import split_context
from transduce.text.lines import shown

T = TypeVar("T")
Text = str | Sequence[str]
"""A text; a pair of texts; the words of a sentence."""

TASKS = {"labels": "classify", "tags": "tag", "span": "answer", "language": "mask", "none": "none"}
"""The objective that an encoder was trained with, by its head."""


class WordTag(NamedTuple):
    """A word with its label."""

    word: str
    label: str
    probability: float


Prediction = LabelPrediction | list[WordTag] | AnswerSpan | list[list[MaskFill]]
"""The label of a text, a tag per word, an answer span, or candidates for every `<mask>`."""


class TextEncoder(Pretrained):
    """Predicts with one text encoder; what it predicts depends on the head that it was trained with."""

    model_task = "text_encoding"

    def __init__(self, contents: ModelFolder) -> None:
        self.contents = checked_contents(contents)
        self.model, self.notes = contents.encoder, contents.notes
        self.tokenizer = contents.source_tokenizer
        self.head = str(getattr(contents.config, "head", "none"))
        self.task = TASKS[self.head]
        is_babi = (self.notes.get("columns") or {}).get("format") == "babi"
        self.reads_context = self.model.attends_to_facts or (self.model.max_texts is None and is_babi)
        """Whether a text is a context of facts with a question as the last sentence."""
        labels = self.notes.get("labels") or [f"LABEL_{n}" for n in range(getattr(contents.config, "num_labels", 0))]
        self.engine = EncoderEngine(
            self.model,
            self.tokenizer,
            labels,
            self.notes.get("max_length"),
            self.notes.get("stride") or 64,
            bool(self.notes.get("allow_no_answer")),
        )

    def _facts(self) -> Mapping[str, str]:
        labels = self.notes.get("labels")
        trained = {"objective": self.task} | ({"labels": f"{len(labels):,}"} if labels else {})
        return {**super()._facts(), **trained}

    def use(self, precision: Precision) -> None:
        """Compute products in float32 (the default) or int8; not while it predicts."""
        self.model.freeze(precision)

    @property
    def truncated(self) -> int:
        """Number of texts so far that were too long and were truncated."""
        return self.engine.truncated

    @property
    def truncated_part(self) -> str:
        """What those texts lost."""
        parts = {"tags": "the end of a word", "span": "the end of their question"}
        return "their oldest sentences" if self.reads_context else parts.get(self.head, "their end")

    def __call__(self, text: str | Sequence[Text]) -> Prediction | list[Prediction]:
        """Return what the head predicts for one text, or for each item of a list; see `predict`."""
        return self.predict([text])[0] if isinstance(text, str) else self.predict(text)

    def predict(self, texts: Sequence[Text]) -> list[Prediction]:
        """Return what the head predicts for texts or pairs (labels), sentences, as text or as words (tags), pairs of
        question and context (span), or texts with `<mask>` (language)."""
        texts = _checked(texts)
        if self.head == "labels":
            return list(self.engine.label([self._several(text) for text in texts]))
        if self.head == "tags":
            sentences = [text.split() if isinstance(text, str) else list(text) for text in texts]
            return [_tagged(*pair) for pair in zip(sentences, self.engine.tag(sentences), strict=True)]
        if self.head == "span":
            return list(self.engine.answer([_question(text) for text in texts]))
        if self.head == "language":
            return [self.fill(text if isinstance(text, str) else " ".join(text)) for text in texts]
        raise SettingsError("this text encoder has no head to predict with; compute vectors with `transduce embed`")

    def embed(self, texts: Sequence[Text], pool: str = "mean", normalize: bool = False) -> NDArray[np.float32]:
        """Return a vector for each text or pair.  -> (texts, D).

        mean: of all tokens; first: the start token's; pooled: the output of the model's pooler.
        """
        return self.engine.embed([self._several(text) for text in _checked(texts)], pool, normalize)

    def fill(self, text: str, top: int = 5) -> list[list[MaskFill]]:
        """Return the candidates for every `<mask>` of a text, the likeliest first."""
        return self.engine.fill(text, top)

    def attention(self, text: Text, top: int = 5) -> AttentionMaps:
        """Encode one text or pair and return its attention maps; for a context of facts, those of each hop.

        If the text has masks, `steps` has the `top` likeliest tokens for each of them.
        """
        texts = self._several(text)
        if len(texts) == 1 and self.engine.has_mask(texts[0]):
            row = self.engine.masked_row(texts[0])
            return replace(self._self_attention(row, texts), steps=tuple(self.engine.mask_steps(row, top)))
        row, predicted = self.engine.row(texts), ""
        if self.head in ("labels", "tags", "span"):
            predicted = as_text(self.predict([texts[0] if len(texts) == 1 else texts])[0])
        if self.model.attends_to_facts:
            return hops_of(self.model, self.engine.tensors([row]), texts, predicted)
        return self._self_attention(row, texts, predicted)

    def _self_attention(self, row: list[int], texts: Sequence[str], predicted: str = "") -> AttentionMaps:
        inputs = self.engine.tensors([row])
        pieces = self.tokenizer.pieces(inputs[0][0].tolist())
        return self_attention_of(self.model, inputs, pieces, " | ".join(texts), predicted)

    @property
    def inspect_options(self) -> frozenset[str]:
        """Options of `transduce inspect` that have an effect on this model."""
        own = {"tags": (), "language": ("second", "top")}.get(self.head, ("second",))
        return frozenset(("kind", "layer", "head", *own))

    @property
    def inspect_note(self) -> str | None:
        """What was not inspected of the texts so far."""
        if not self.truncated:
            return None
        return f"the text is longer than the model's maximum and lost {self.truncated_part}"

    def inspect(self, text: str, second: str | None = None, top: int = 5) -> AttentionMaps:
        """Return the same as `attention`; `second` is the second text of a pair."""
        return self.attention(text if second is None else [text, second], top)

    def _several(self, text: Text) -> list[str]:
        """One text or a pair; of a context, the facts and then the question."""
        if not self.reads_context:
            return _pair(text)
        context = split_context(text if isinstance(text, str) else "\t".join(text))
        if not context:
            raise DataError("the text has no facts followed by a question; give both")
        return context


def for_lines(predict: Callable[[list[Text]], T], texts: Mapping[int, Text], file: str) -> T:
    """Predict for the texts of some lines of a file; an error names the line."""
    try:
        return predict(list(texts.values()))
    except DataError:
        for line, text in texts.items():
            try:
                predict([text])
            except DataError as error:
                raise DataError(f"{shown(file)}:{line}: {error}") from None
        raise


def as_text(prediction: Prediction) -> str:
    """Return a prediction as one line."""
    if isinstance(prediction, AnswerSpan | LabelPrediction):
        return prediction.text if isinstance(prediction, AnswerSpan) else prediction.label
    if prediction and isinstance(prediction[0], WordTag):
        return " ".join(word.label for word in prediction if isinstance(word, WordTag))
    return " ".join(guesses[0].piece for guesses in prediction if isinstance(guesses, list))


def as_json(prediction: Prediction) -> Table | list[Any]:
    """Return a prediction as plain values."""
    if isinstance(prediction, AnswerSpan | LabelPrediction):
        return prediction._asdict()
    return [
        one._asdict() if isinstance(one, WordTag) else [guess._asdict() for guess in one if isinstance(guess, MaskFill)]
        for one in prediction
    ]


def _checked(texts: Any) -> list[Text]:
    """Return the items of a list, each a text or several; a single text, or anything else, is a `TypeError`."""
    if not is_several(texts):
        return list(checked_texts(texts))  # which says what is wrong
    return [
        list(checked_texts(text, f"texts[{number}]")) if is_several(text) else checked_text(text, f"texts[{number}]")
        for number, text in enumerate(texts)
    ]


def _pair(text: Text) -> list[str]:
    texts = [text] if isinstance(text, str) else list(text)
    if len(texts) not in (1, 2):
        raise SettingsError(f"a text encoder takes one text or a pair, not {len(texts)} texts")
    return texts


def _question(text: Text) -> tuple[str, str]:
    if isinstance(text, str) or len(text) != 2:
        raise SettingsError("this model needs a pair of texts: (question, context)")
    return text[0], text[1]


def _tagged(words: Sequence[str], labels: Sequence[LabelPrediction]) -> list[WordTag]:
    return [WordTag(word, *one) for word, one in zip(words, labels, strict=True)]


# Writing vectors.


class VectorFile:
    """Writes float32 rows to an `.npy` file one by one; their number is known only at the end.

    The file appears when the context ends without an error.
    """

    def __init__(self, path: Path, width: int) -> None:
        self.path, self.width, self.count = path, width, 0

    def append(self, rows: NDArray[np.float32]) -> None:
        """Add rows."""
        self._file.write(np.ascontiguousarray(rows, dtype="<f4").tobytes())
        self.count += len(rows)

    def _header(self) -> None:
        """Write the header; numpy pads it so that the first axis can grow, and it can be overwritten."""
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
