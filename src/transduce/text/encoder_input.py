"""Inputs and targets of text encoders as tokens, for training and for prediction alike.

An input has the tokens between start and end; in a pair, an end token separates the two texts. Targets by objective:

    classify   [label]
    tag        0, then for every token 0 or the label + 1, which is at the first piece of each word
    answer     [first, last] token of the answer, counted with the start token; both 0 if the window has none
    mask       drawn again in every epoch, see `masking`
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.base import truncate_pair


@dataclass(frozen=True)
class ContextWindow:
    """A question with a part of its context."""

    tokens: list[int]
    """Question, end, a part of the context."""
    first: int
    """Index of the context's first token, counted with the start token."""
    offsets: list[tuple[int, int]]
    """Characters (from, up to) of each of the context's tokens."""
    inner: tuple[int, int]
    """Tokens (from, up to; counted with the start token) that have more context on both sides here than in any other
    window: an answer is taken from the window with the most context around it."""
    cut: bool
    """Whether the question was truncated."""


def label_tokens(tokenizer: AnyTokenizer, labels: Sequence[str]) -> list[int]:
    """Return the token of each label's word; -1 for a label that is not a single token of the vocabulary."""
    encoded = tokenizer.encode_batch(list(labels))
    return [tokens[0] if len(tokens) == 1 and tokens[0] != tokenizer.unknown else -1 for tokens in encoded]


def classification_input(tokenizer: AnyTokenizer, texts: Sequence[str], max_length: int) -> tuple[list[int], bool]:
    """Return the tokens of a text, a pair, or facts followed by a question, and whether they were truncated."""
    encoded = tokenizer.encode_batch(list(texts))
    if len(encoded) > 2:
        return _facts_input(encoded, tokenizer.end, max_length)
    first, second = encoded[0], encoded[1] if len(encoded) > 1 else None
    kept, kept_second = truncate_pair(first, second, max_length)
    joined = kept if kept_second is None else [*kept, tokenizer.end, *kept_second]
    whole = len(first) + (0 if second is None else len(second) + 1)
    return joined, len(joined) < whole


def _facts_input(encoded: list[list[int]], end: int, max_length: int) -> tuple[list[int], bool]:
    """Join facts and a question; drop the oldest facts if they do not fit."""
    *facts, question = encoded
    joined, was_cut = question[: max_length - 2], len(question) > max_length - 2
    for fact in reversed(facts):
        if len(fact) + 1 + len(joined) > max_length - 2:
            return joined, True
        joined = [*fact, end, *joined]
    return joined, was_cut


def split_context(text: str) -> list[str]:
    """Split a text into sentences, or at its tabs if it has any, without final punctuation."""
    parts = text.split("\t") if "\t" in text else re.split(r"(?<=[.?!])\s+", text)
    return [part for part in (part.strip().rstrip(".?!").rstrip() for part in parts) if part]


class WordPieces:
    """A cache of the pieces of words."""

    MAX_WORDS = 100_000

    def __init__(self, tokenizer: AnyTokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, list[int]] = {}

    def of(self, words: Sequence[str]) -> list[list[int]]:
        """Return the pieces of each word, at least one: the unknown token for a word without pieces."""
        new = [word for word in dict.fromkeys(words) if word not in self._known]
        if len(self._known) + len(new) > self.MAX_WORDS:
            self._known, new = {}, list(dict.fromkeys(words))
        unknown = self._tokenizer.end if self._tokenizer.unknown is None else self._tokenizer.unknown
        for word, pieces in zip(new, self._tokenizer.encode_batch(new) if new else [], strict=True):
            self._known[word] = pieces or [unknown]
        return [self._known[word] for word in words]


def tagging_inputs(pieces: Sequence[Sequence[int]], max_length: int) -> list[tuple[list[int], list[int]]]:
    """Split a sentence between words into inputs that fit: (tokens, first token of each word, start included)."""
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
    """Whether a word has more pieces than fit into an input."""
    return any(len(word) > max_length - 2 for word in pieces)


def tagging_targets(length: int, begins: Sequence[int], labels: Sequence[str], numbers: Mapping[str, int]) -> list[int]:
    """Return the targets of an input of `length` tokens."""
    targets = [0] * (length + 1)
    for place, label in zip(begins, labels, strict=True):
        targets[place] = numbers[label] + 1
    return targets


def context_windows(
    tokenizer: AnyTokenizer, question: str, context: str, max_length: int, stride: int
) -> list[ContextWindow]:
    """Return a question with every part of its context; parts overlap by `stride` tokens.

    A question is truncated to half of the available length.
    """
    whole = tokenizer.encode_batch([question])[0]
    question_tokens = whole[: (max_length - 3) // 2]
    tokens, offsets = tokenizer.encode_with_offsets(context)
    room = max_length - 3 - len(question_tokens)
    step = max(1, room // 4, room - stride)  # a long question leaves little space, so parts overlap less
    starts = [0]
    while starts[-1] + room < len(tokens):
        starts.append(starts[-1] + step)
    first = len(question_tokens) + 2
    found = []
    for number, start in enumerate(starts):
        stop = min(start + room, len(tokens))
        before = 0 if number == 0 else (starts[number - 1] + room - start) // 2
        after = stop - start
        if number + 1 < len(starts):
            after = starts[number + 1] - start + (stop - starts[number + 1]) // 2
        found.append(
            ContextWindow(
                [*question_tokens, tokenizer.end, *tokens[start:stop]],
                first,
                offsets[start:stop],
                (first + before, first + after),
                len(question_tokens) < len(whole),
            )
        )
    return found


def span_targets(window: ContextWindow, start: int, end: int) -> list[int]:
    """Return the first and last token of characters `start` to `end`; [0, 0] if the window does not contain them."""
    inside = [place for place, (left, right) in enumerate(window.offsets) if left < end and right > start]
    if not inside:
        return [0, 0]
    if window.offsets[inside[0]][0] > start or window.offsets[inside[-1]][1] < end:
        return [0, 0]
    return [window.first + inside[0], window.first + inside[-1]]
