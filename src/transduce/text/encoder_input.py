"""Examples as tokens: what a reader reads, and what it should say about it.

A row's tokens are what stands between start and end; a pair has the end token between its texts too, by which the two
are told apart. What is wanted is written as numbers, by task:

    classify   [label]
    tag        0, then for every token 0 or the label + 1, which stands at the first piece of each word
    answer     [first, last] token of the answer, counted with the start token; both 0 where the window has none
    mask       made anew in every epoch, see `masking`

The same functions make rows for training and for a text that somebody asks about.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from transduce.text.tokenizer.batch_encoding import EncodesBatches, truncate_pair


class OffsetTokenizer(EncodesBatches, Protocol):
    """What making rows asks of a tokenizer."""

    size: int
    unknown: int | None

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return tokens, and the characters that each was made of."""


@dataclass(frozen=True)
class ContextWindow:
    """A part of a context as it stands behind its question."""

    tokens: list[int]
    """Question, end, a part of the context."""
    first: int
    """Where the context begins, counted with the start token."""
    places: list[tuple[int, int]]
    """Of the context's tokens here: the characters of the context that each was made of."""
    inner: tuple[int, int]
    """The tokens of the context (from, up to; counted as `tokens` are with the start) for which no other window has
    more to both sides: an answer is taken from the window that sees it best."""
    cut: bool
    """Whether the end of the question is missing."""


def label_tokens(tokenizer: OffsetTokenizer, labels: Sequence[str]) -> list[int]:
    """Return the token that each label is written with; -1 for one that is no single word of the vocabulary."""
    encoded = tokenizer.encode_batch(list(labels))
    return [tokens[0] if len(tokens) == 1 and tokens[0] != tokenizer.unknown else -1 for tokens in encoded]


def classification_input(tokenizer: OffsetTokenizer, texts: Sequence[str], max_length: int) -> tuple[list[int], bool]:
    """Return the tokens of a text or pair, or of facts with a question behind them, and whether they had to be cut."""
    encoded = tokenizer.encode_batch(list(texts))
    if len(encoded) > 2:
        return _story_row(encoded, tokenizer.end, max_length)
    first, second = encoded[0], encoded[1] if len(encoded) > 1 else None
    kept, kept_second = truncate_pair(first, second, max_length)
    joined = kept if kept_second is None else [*kept, tokenizer.end, *kept_second]
    whole = len(first) + (0 if second is None else len(second) + 1)
    return joined, len(joined) < whole


def _story_row(encoded: list[list[int]], end: int, max_length: int) -> tuple[list[int], bool]:
    """Join facts and a question, without the oldest facts where there is no room for all."""
    *facts, question = encoded
    joined, was_cut = question[: max_length - 2], len(question) > max_length - 2
    for fact in reversed(facts):
        if len(fact) + 1 + len(joined) > max_length - 2:
            return joined, True
        joined = [*fact, end, *joined]
    return joined, was_cut


def split_context(text: str) -> list[str]:
    """Cut a text into its sentences, or at its tabs if it has any, without the marks at their ends."""
    parts = text.split("\t") if "\t" in text else re.split(r"(?<=[.?!])\s+", text)
    return [part for part in (part.strip().rstrip(".?!").rstrip() for part in parts) if part]


class WordPieces:
    """The pieces of words; the same words come again and again."""

    MOST_KEPT = 100_000

    def __init__(self, tokenizer: OffsetTokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, list[int]] = {}

    def of(self, words: Sequence[str]) -> list[list[int]]:
        """Return the pieces of each word, at least one: the unknown one for a word that nothing is left of."""
        new = [word for word in dict.fromkeys(words) if word not in self._known]
        if len(self._known) + len(new) > self.MOST_KEPT:
            self._known, new = {}, list(dict.fromkeys(words))
        unknown = self._tokenizer.end if self._tokenizer.unknown is None else self._tokenizer.unknown
        for word, pieces in zip(new, self._tokenizer.encode_batch(new) if new else [], strict=True):
            self._known[word] = pieces or [unknown]
        return [self._known[word] for word in words]


def tagging_inputs(pieces: Sequence[Sequence[int]], max_length: int) -> list[tuple[list[int], list[int]]]:
    """Cut a sentence into rows that fit, between words: (tokens, where each word begins, counted with the start)."""
    room = max_length - 2
    rows: list[tuple[list[int], list[int]]] = []
    tokens: list[int] = []
    begins: list[int] = []
    for word in pieces:
        word = list(word[:room])
        if len(tokens) + len(word) > room:
            rows.append((tokens, begins))
            tokens, begins = [], []
        begins.append(len(tokens) + 1)
        tokens = tokens + word
    if begins:
        rows.append((tokens, begins))
    return rows


def has_overlong_word(pieces: Sequence[Sequence[int]], max_length: int) -> bool:
    """Whether a word has more pieces than a row has room for."""
    return any(len(word) > max_length - 2 for word in pieces)


def tagging_targets(length: int, begins: Sequence[int], labels: Sequence[str], numbers: Mapping[str, int]) -> list[int]:
    """Return what is wanted of a row of so many tokens."""
    wanted = [0] * (length + 1)
    for place, label in zip(begins, labels, strict=True):
        wanted[place] = numbers[label] + 1
    return wanted


def context_windows(
    tokenizer: OffsetTokenizer, question: str, context: str, max_length: int, stride: int
) -> list[ContextWindow]:
    """Return a question with every part of its context, each part overlapping the next by `stride` tokens.

    A question may take half of the room; what is over is cut off.
    """
    whole = tokenizer.encode_batch([question])[0]
    asked = whole[: (max_length - 3) // 2]
    tokens, places = tokenizer.encode_with_offsets(context)
    room = max_length - 3 - len(asked)
    step = max(1, room // 4, room - stride)  # a long question leaves little room: then windows overlap by less
    starts = [0]
    while starts[-1] + room < len(tokens):
        starts.append(starts[-1] + step)
    first = len(asked) + 2
    found = []
    for number, start in enumerate(starts):
        stop = min(start + room, len(tokens))
        before = 0 if number == 0 else (starts[number - 1] + room - start) // 2
        after = stop - start
        if number + 1 < len(starts):
            after = starts[number + 1] - start + (stop - starts[number + 1]) // 2
        found.append(
            ContextWindow(
                [*asked, tokenizer.end, *tokens[start:stop]],
                first,
                places[start:stop],
                (first + before, first + after),
                len(asked) < len(whole),
            )
        )
    return found


def span_targets(window: ContextWindow, start: int, end: int) -> list[int]:
    """Return the first and last token of the context's characters `start` to `end`, [0, 0] if not all are there."""
    inside = [place for place, (left, right) in enumerate(window.places) if left < end and right > start]
    if not inside:
        return [0, 0]
    if window.places[inside[0]][0] > start or window.places[inside[-1]][1] < end:
        return [0, 0]
    return [window.first + inside[0], window.first + inside[-1]]
