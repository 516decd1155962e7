"""How the examples of each objective become rows of a prepared corpus."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from transduce.tasks.text_encoding.config import TextEncodingConfig
from transduce.tasks.text_encoding.corpus import Example, paired, segments
from transduce.text.encoder_input import (
    WordPieces,
    classification_input,
    context_windows,
    has_overlong_word,
    span_targets,
    tagging_inputs,
    tagging_targets,
)
from transduce.text.tokenizer import AnyTokenizer

Note = tuple[Example, str]
"""An example, and a reason of `report.REASONS`."""


@dataclass(frozen=True)
class Row:
    """One row: tokens and targets."""

    tokens: list[int]
    targets: list[int]
    """The number of a label, one for each token, or where an answer starts and ends; none for mask."""
    example: Example | None = None
    """The example, with the first of its rows; none for mask."""


class Encoder(ABC):
    """Encodes examples as rows."""

    def __init__(self, data: TextEncodingConfig, tokenizer: AnyTokenizer, labels: Sequence[str]) -> None:
        self.data, self.tokenizer = data, tokenizer
        self.numbers = {label: number for number, label in enumerate(labels)}

    @abstractmethod
    def rows(self, examples: Sequence[Example]) -> tuple[list[Row], list[Note]]:
        """Return the rows of some examples, and the issues of some of them."""

    def keeps(self, reason: str) -> bool:
        """Whether an example with this issue is kept."""
        return reason in ("cut", "word_cut", "question_cut", "split")


class LabelEncoder(Encoder):
    """A text or pair with its label."""

    def rows(self, examples: Sequence[Example]) -> tuple[list[Row], list[Note]]:
        rows, notes = [], list[Note]()
        for example in examples:
            tokens, was_cut = classification_input(self.tokenizer, example.texts, self.data.max_length)
            if was_cut:
                notes.append((example, "cut"))
            (label,) = example.labels
            rows.append(Row(tokens, [self.numbers[label]], example))
        return rows, notes


class TagEncoder(Encoder):
    """Words with their labels."""

    def __init__(self, data: TextEncodingConfig, tokenizer: AnyTokenizer, labels: Sequence[str]) -> None:
        super().__init__(data, tokenizer, labels)
        self.pieces = WordPieces(tokenizer)

    def rows(self, examples: Sequence[Example]) -> tuple[list[Row], list[Note]]:
        rows, notes = list[Row](), list[Note]()
        for example in examples:
            pieces = self.pieces.of(example.texts)
            several = tagging_inputs(pieces, self.data.max_length)
            if len(several) > 1:
                notes.append((example, "split"))
            if has_overlong_word(pieces, self.data.max_length):
                notes.append((example, "word_cut"))
            done = 0
            for number, (tokens, begins) in enumerate(several):
                labels = example.labels[done : done + len(begins)]
                targets = tagging_targets(len(tokens), begins, labels, self.numbers)
                rows.append(Row(tokens, targets, None if number else example))
                done += len(begins)
        return rows, notes


class AnswerEncoder(Encoder):
    """A question with every window of its context."""

    def rows(self, examples: Sequence[Example]) -> tuple[list[Row], list[Note]]:
        rows, notes = list[Row](), list[Note]()
        for example in examples:
            question, context = example.texts
            if not example.answers and not self.data.allow_no_answer:
                notes.append((example, "unanswered"))
                continue
            several = context_windows(self.tokenizer, question, context, self.data.max_length, self.data.stride)
            answer, start = example.answers[0] if example.answers else ("", -1)
            targets = [span_targets(window, start, start + len(answer)) if answer else [0, 0] for window in several]
            if answer and not any(map(any, targets)):  # it would teach that there is no answer
                notes.append((example, "no_window"))
                continue
            if len(several) > 1:
                notes.append((example, "split"))
            if several[0].cut:
                notes.append((example, "question_cut"))
            for number, (window, span) in enumerate(zip(several, targets, strict=True)):
                rows.append(Row(window.tokens, span, None if number else example))
        return rows, notes


class MaskEncoder(Encoder):
    """A document of sentences; what is masked is drawn in every epoch."""

    def rows(self, examples: Sequence[Example]) -> tuple[list[Row], list[Note]]:
        sentences = self.tokenizer.encode_batch([example.texts[0] for example in examples])
        frame = 3 if self.data.next_sentence else 2
        room = self.data.max_length - frame
        if self.data.next_sentence:
            pairs, left_over = paired(segments(sentences, room // 2))
            found = [[*first, self.tokenizer.end, *second] for first, second in pairs]
        else:
            found, left_over = [one for one in segments(sentences, room) if one], False
        if not found:
            return [], [(example, "too_short") for example in examples]
        notes = list[Note]()
        if left_over:  # the last token is a whole sentence, or the end of one that was used
            last = next(place for place in reversed(range(len(examples))) if sentences[place])
            notes.append((examples[last], "left_over" if len(sentences[last]) == 1 else "cut"))
        return [Row(tokens, []) for tokens in found], notes


_ENCODERS: dict[str, type[Encoder]] = {
    "mask": MaskEncoder,
    "classify": LabelEncoder,
    "tag": TagEncoder,
    "answer": AnswerEncoder,
}


def encoder_for(data: TextEncodingConfig, tokenizer: AnyTokenizer, labels: Sequence[str]) -> Encoder:
    """Return the encoder of the objective."""
    return _ENCODERS[data.objective](data, tokenizer, labels)
