"""Texts in, what a reader's head says about them out: labels, tags, answers, hidden pieces, vectors.

Texts are read together with others of similar length, a budget of tokens at a time, and the answers come in the order
of the texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.errors import DataError, SettingsError
from transduce.models.head import LanguageHead, SpanHead
from transduce.models.interface import EncoderModel, Encoding
from transduce.text.encoder_input import (
    ContextWindow,
    WordPieces,
    classification_input,
    context_windows,
    has_overlong_word,
    tagging_inputs,
)
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.special import MASK

T = TypeVar("T")

TOKENS_TOGETHER = 4096
"""Padding included."""
LONGEST_ANSWER = 30
"""Tokens of an answer, as in BERT's own script."""


class Said(NamedTuple):
    """One label and how sure the reader is."""

    label: str
    probability: float


class Found(NamedTuple):
    """An answer in a text; empty where the reader thinks that there is none."""

    text: str
    start: int
    """The first character of the context that it is made of, …"""
    end: int
    """… and the one after its last."""
    probability: float


class Guess(NamedTuple):
    """What could stand at a hidden place."""

    piece: str
    probability: float


class ReadingEngine:
    """Asks one reader."""

    def __init__(
        self,
        model: EncoderModel,
        tokenizer: AnyTokenizer,
        labels: Sequence[str] = (),
        max_length: int | None = None,
        stride: int = 64,
        may_be_empty: bool = False,
    ) -> None:
        """`max_length` is how many tokens are read at once: what the model learned with, at most what it can read."""
        self.model, self.tokenizer, self.labels = model, tokenizer, list(labels)
        limit = model.max_source or 512
        self.max_length, self.stride = min(max_length or limit, limit), stride
        self.may_be_empty = may_be_empty
        self.cut = 0
        """Texts that were too long and lost a part."""

    def label(self, texts: Sequence[Sequence[str]]) -> list[Said]:
        """Return the likeliest label of each text or pair."""
        rows = [self.row(text) for text in texts]

        def say(reading: Encoding, _: Sequence[int]) -> list[Said]:
            assert self.model.head is not None
            best = self.model.head(reading).softmax(dim=-1).max(dim=-1)
            return [Said(self.labels[at], p) for p, at in zip(best[0].tolist(), best[1].tolist(), strict=True)]

        return self._read(rows, say)

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[list[Said]]:
        """Return a label for each word of each sentence; long sentences are read in several parts."""
        known = WordPieces(self.tokenizer)
        pieces = [known.of(words) for words in sentences]
        self.cut += sum(has_overlong_word(words, self.max_length) for words in pieces)
        parts = [tagging_inputs(words, self.max_length) for words in pieces]
        flat = [part for several in parts for part in several]

        def say(reading: Encoding, which: Sequence[int]) -> list[list[Said]]:
            assert self.model.head is not None
            value_BN, best_BN = self.model.head(reading).softmax(dim=-1).max(dim=-1)
            values, best = value_BN.tolist(), best_BN.tolist()
            return [
                [Said(self.labels[best[row][at]], values[row][at]) for at in flat[place][1]]
                for row, place in enumerate(which)
            ]

        said = iter(self._read([tokens for tokens, _ in flat], say))
        return [[word for _ in several for word in next(said)] for several in parts]

    def answer(self, questions: Sequence[tuple[str, str]]) -> list[Found]:
        """Return where in its context each question is answered."""
        parts = [context_windows(self.tokenizer, *pair, self.max_length, self.stride) for pair in questions]
        self.cut += sum(several[0].cut for several in parts)
        flat = [window for several in parts for window in several]

        def say(reading: Encoding, which: Sequence[int]) -> list[tuple[float, Found, float, Found]]:
            head = self.model.head
            assert isinstance(head, SpanHead)
            return [_best_span(scores, flat[place]) for scores, place in zip(head.span_scores(reading), which, strict=True)]

        said = iter(self._read([window.tokens for window in flat], say))
        found = []
        for (_, context), several in zip(questions, parts, strict=True):
            seen = [next(said) for _ in several]
            score, best, *_ = max(seen, key=lambda one: one[0])
            *_, empty, none = min(seen, key=lambda one: one[2])
            if self.may_be_empty and empty > score:
                best = none
            found.append(best._replace(text=context[best.start : best.end]))
        return found

    def fill(self, text: str, top: int = 5) -> list[list[Guess]]:
        """Return what could stand at every `<mask>` of a text, the likeliest first; what an imported tokenizer calls
        it ([MASK], say) means the same."""
        head, mask = self.model.head, self.tokenizer.mask
        if not isinstance(head, LanguageHead) or mask is None:
            raise SettingsError("this reader was not trained to guess hidden pieces; use one with head = 'language'")
        spelled = {MASK, *self.tokenizer.pieces([mask])}
        parts = re.split("|".join(map(re.escape, spelled)), text)
        if len(parts) == 1:
            raise DataError(f"there is nothing to fill in; write {MASK} where a piece is missing")
        tokens: list[int] = []
        for number, part in enumerate(self.tokenizer.encode_batch([part.strip() for part in parts])):
            tokens += [*([mask] if number else []), *part]
        if len(tokens) > self.max_length - 2:
            raise DataError(f"the text has {len(tokens)} tokens and the model reads {self.max_length - 2}; shorten it")

        def say(reading: Encoding, _: Sequence[int]) -> list[list[list[Guess]]]:
            places = [place + 1 for place, token in enumerate(tokens) if token == mask]
            best = head.output(head.vectors(reading.states[0, places])).softmax(dim=-1).topk(top)
            pieces = [self.tokenizer.pieces(row) for row in best.indices.tolist()]
            return [
                [
                    [Guess(piece, p) for piece, p in zip(some, values, strict=True)]
                    for some, values in zip(pieces, best.values.tolist(), strict=True)
                ]
            ]

        return self._read([tokens], say)[0]

    def embed(self, texts: Sequence[Sequence[str]], pool: str = "mean", normalise: bool = False) -> NDArray[np.float32]:
        """Return a vector for each text or pair.  -> (texts, D).

        mean: of all its tokens, those that frame it included; first: the start token's; pooled: what the model itself
        makes of that.
        """
        if pool not in ("mean", "first", "pooled"):
            raise SettingsError(f"vectors are pooled by mean, first or pooled, not by '{pool}'")
        rows = [self.row(text) for text in texts]

        def say(reading: Encoding, _: Sequence[int]) -> list[NDArray[np.float32]]:
            vectors = _pooled(reading, pool)
            if normalise:
                vectors = torch.nn.functional.normalize(vectors, dim=-1)
            return list(vectors.float().cpu().numpy())

        found = self._read(rows, say)
        return np.stack(found) if found else np.zeros((0, self.model.width), dtype=np.float32)

    def row(self, texts: Sequence[str]) -> list[int]:
        """Return the tokens of a text or pair, cut to what the model reads."""
        tokens, was_cut = classification_input(self.tokenizer, texts, self.max_length)
        self.cut += was_cut
        return tokens

    def _read(self, rows: Sequence[list[int]], say: Callable[[Encoding, Sequence[int]], Sequence[T]]) -> list[T]:
        """Read rows in batches of similar length; `say` gets a reading and which rows it is of."""
        answers: dict[int, T] = {}
        with torch.inference_mode():
            for which in _together([len(row) + 2 for row in rows]):
                reading = self.model(*self.tensors([rows[place] for place in which]))
                answers |= zip(which, say(reading, which), strict=True)
        return [answers[place] for place in range(len(rows))]

    def tensors(self, rows: Sequence[list[int]]) -> tuple[Tensor, Tensor, Tensor]:
        """Frame and pad rows: tokens, which are real, which of the texts."""
        special, width = self.tokenizer.specials, max(map(len, rows)) + 2
        tokens = torch.full((len(rows), width), special.pad)
        for place, row in enumerate(rows):
            tokens[place, : len(row) + 2] = torch.tensor([special.start, *row, special.end])
        allowed = torch.arange(width) < torch.tensor([len(row) + 2 for row in rows])[:, None]
        is_end = tokens == special.end
        segments = (is_end.cumsum(dim=1) - is_end.long()).masked_fill(~allowed, 0)
        device = self.model.device
        return tokens.to(device), allowed.to(device), segments.to(device)


def answers_to(engine: ReadingEngine, task: str, questions: Sequence[Any]) -> list[Any]:
    """Return what a reader says of examples of a task: a label, a label per word, or the text of an answer."""
    if task == "classify":
        return [said.label for said in engine.label(questions)]
    if task == "tag":
        return [[said.label for said in words] for words in engine.tag(questions)]
    return [found.text for found in engine.answer([(question, context) for question, context in questions])]


def _together(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield places of similar length, long ones first, so that too little memory shows early."""
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    start = 0
    while start < len(order):
        count = max(1, TOKENS_TOGETHER // lengths[order[start]])
        yield order[start : start + count]
        start += count


def _pooled(reading: Encoding, pool: str) -> Tensor:
    if pool == "first":
        return reading.states[:, 0]
    if pool == "pooled":
        if reading.pooled is None:
            raise SettingsError("this reader has no pooled vector under its head; pool by mean or first")
        return reading.pooled
    real_BN1 = reading.allowed[:, :, None].to(reading.states.dtype)
    return (reading.states * real_BN1).sum(dim=1) / real_BN1.sum(dim=1)


def _best_span(score_2N: Tensor, window: ContextWindow) -> tuple[float, Found, float, Found]:
    """Return the score of the best span that this window sees best, that span, the score of none, and none itself."""
    start_N, end_N = score_2N.cpu().double()
    low, high = window.inner
    last = window.first + len(window.places)
    begins_N, ends_N = start_N.softmax(0), end_N.softmax(0)
    none = float(start_N[0] + end_N[0]), Found("", 0, 0, float(begins_N[0] * ends_N[0]))
    if low >= high:
        return -np.inf, Found("", 0, 0, 0.0), *none
    score_SE = start_N[low:high, None] + end_N[None, low:last]
    ahead_SE = torch.arange(low, last)[None] - torch.arange(low, high)[:, None]
    score_SE = score_SE.masked_fill((ahead_SE < 0) | (ahead_SE >= LONGEST_ANSWER), -torch.inf)
    best = int(score_SE.argmax())
    first, final = low + best // score_SE.shape[1], low + best % score_SE.shape[1]
    chance = float(begins_N[first] * ends_N[final])
    place = window.places[first - window.first][0], window.places[final - window.first][1]
    return float(score_SE.max()), Found("", *place, chance), *none
