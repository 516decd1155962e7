"""Batches of texts through a text encoder and its head: labels, tags, answer spans, masked tokens, vectors.

Texts of similar length are encoded together, within a budget of tokens; predictions come in the order of the texts.
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
from transduce.inspection.replay import DecodingStep, steps_of_logits
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

BATCH_TOKENS = 4096
"""Tokens of one batch, padding included."""
LONGEST_ANSWER = 30
"""Maximum tokens of an answer span, as in BERT's own script."""


class LabelPrediction(NamedTuple):
    """A label and its probability."""

    label: str
    probability: float


class AnswerSpan(NamedTuple):
    """The span of a context that answers a question; empty if the model finds none."""

    text: str
    start: int
    """Its first character in the context, …"""
    end: int
    """… and the one after its last."""
    probability: float


class MaskFill(NamedTuple):
    """A candidate for a masked token."""

    piece: str
    probability: float


class EncoderEngine:
    """Runs one text encoder."""

    def __init__(
        self,
        model: EncoderModel,
        tokenizer: AnyTokenizer,
        labels: Sequence[str] = (),
        max_length: int | None = None,
        stride: int = 64,
        allow_no_answer: bool = False,
    ) -> None:
        """`max_length` is the number of tokens read at once: that of training, at most what the model can read."""
        self.model, self.tokenizer, self.labels = model, tokenizer, list(labels)
        limit = model.max_source or 512
        self.max_length, self.stride = min(max_length or limit, limit), stride
        self.allow_no_answer = allow_no_answer
        self.truncated = 0
        """Texts that were too long and were truncated."""

    def label(self, texts: Sequence[Sequence[str]]) -> list[LabelPrediction]:
        """Return the likeliest label of each text or pair."""
        rows = [self.row(text) for text in texts]

        def predict(encoding: Encoding, _: Sequence[int]) -> list[LabelPrediction]:
            assert self.model.head is not None
            best = self.model.head(encoding).softmax(dim=-1).max(dim=-1)
            return [
                LabelPrediction(self.labels[at], p) for p, at in zip(best[0].tolist(), best[1].tolist(), strict=True)
            ]

        return self._read(rows, predict)

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[list[LabelPrediction]]:
        """Return a label for each word of each sentence; long sentences are read in several parts."""
        known = WordPieces(self.tokenizer)
        pieces = [known.of(words) for words in sentences]
        self.truncated += sum(has_overlong_word(words, self.max_length) for words in pieces)
        parts = [tagging_inputs(words, self.max_length) for words in pieces]
        flat = [part for several in parts for part in several]

        def predict(encoding: Encoding, which: Sequence[int]) -> list[list[LabelPrediction]]:
            assert self.model.head is not None
            value_BN, best_BN = self.model.head(encoding).softmax(dim=-1).max(dim=-1)
            values, best = value_BN.tolist(), best_BN.tolist()
            return [
                [LabelPrediction(self.labels[best[row][at]], values[row][at]) for at in flat[place][1]]
                for row, place in enumerate(which)
            ]

        predicted = iter(self._read([tokens for tokens, _ in flat], predict))
        return [[word for _ in several for word in next(predicted)] for several in parts]

    def answer(self, questions: Sequence[tuple[str, str]]) -> list[AnswerSpan]:
        """Return the answer span of each question in its context."""
        parts = [context_windows(self.tokenizer, *pair, self.max_length, self.stride) for pair in questions]
        self.truncated += sum(several[0].cut for several in parts)
        flat = [window for several in parts for window in several]

        def predict(encoding: Encoding, which: Sequence[int]) -> list[tuple[float, AnswerSpan, float, AnswerSpan]]:
            head = self.model.head
            assert isinstance(head, SpanHead)
            return [
                _best_span(scores, flat[place]) for scores, place in zip(head.span_scores(encoding), which, strict=True)
            ]

        predicted = iter(self._read([window.tokens for window in flat], predict))
        found = []
        for (_, context), several in zip(questions, parts, strict=True):
            seen = [next(predicted) for _ in several]
            score, best, *_ = max(seen, key=lambda one: one[0])
            *_, empty, none = min(seen, key=lambda one: one[2])
            if self.allow_no_answer and empty > score:
                best = none
            found.append(best._replace(text=context[best.start : best.end]))
        return found

    def fill(self, text: str, top: int = 5) -> list[list[MaskFill]]:
        """Return the candidates for every `<mask>` of a text, the likeliest first; an imported tokenizer's own name for
        it ([MASK], predict) is accepted too."""
        steps = self.mask_steps(self.masked_row(text), top)
        return [[MaskFill(one.piece, one.probability) for one in step.top] for step in steps]

    def has_mask(self, text: str) -> bool:
        """Whether the model fills masks and the text has one."""
        is_trained = isinstance(self.model.head, LanguageHead) and self.tokenizer.mask is not None
        return is_trained and any(spelled in text for spelled in self._masks())

    def masked_row(self, text: str) -> list[int]:
        """Return the tokens of a text with masks."""
        mask = self.tokenizer.mask
        if not isinstance(self.model.head, LanguageHead) or mask is None:
            raise SettingsError("this model was not trained to fill masks; use one with head = 'language'")
        parts = re.split("|".join(map(re.escape, self._masks())), text)
        if len(parts) == 1:
            raise DataError(f"the text has no mask token; write {MASK} where a token is missing")
        tokens: list[int] = []
        for number, part in enumerate(self.tokenizer.encode_batch([part.strip() for part in parts])):
            tokens += [*([mask] if number else []), *part]
        if len(tokens) > self.max_length - 2:
            raise DataError(f"the text has {len(tokens)} tokens and the model reads {self.max_length - 2}; shorten it")
        return tokens

    def mask_steps(self, row: list[int], top: int) -> list[DecodingStep]:
        """Return the distribution over the vocabulary at each mask of a row; positions count the start token."""
        head, places = self.model.head, [place + 1 for place, token in enumerate(row) if token == self.tokenizer.mask]
        assert isinstance(head, LanguageHead)

        def predict(encoding: Encoding, _: Sequence[int]) -> list[list[DecodingStep]]:
            logit_CV = head.output(head.vectors(encoding.states[0, places]))
            return [list(steps_of_logits(logit_CV, places, (), top, self.tokenizer.pieces))]

        return self._read([row], predict)[0]

    def _masks(self) -> set[str]:
        """How a mask may be spelled."""
        mask = self.tokenizer.mask
        return {MASK} if mask is None else {MASK, *self.tokenizer.pieces([mask])}

    def embed(self, texts: Sequence[Sequence[str]], pool: str = "mean", normalize: bool = False) -> NDArray[np.float32]:
        """Return a vector for each text or pair.  -> (texts, D).

        mean: of all its tokens, special tokens included; first: the start token's; pooled: the model's pooler's.
        """
        if pool not in ("mean", "first", "pooled"):
            raise SettingsError(f"unknown pooling '{pool}'; choose mean, first or pooled")
        rows = [self.row(text) for text in texts]

        def predict(encoding: Encoding, _: Sequence[int]) -> list[NDArray[np.float32]]:
            vectors = _pooled(encoding, pool)
            if normalize:
                vectors = torch.nn.functional.normalize(vectors, dim=-1)
            return list(vectors.float().cpu().numpy())

        found = self._read(rows, predict)
        return np.stack(found) if found else np.zeros((0, self.model.width), dtype=np.float32)

    def row(self, texts: Sequence[str]) -> list[int]:
        """Return the tokens of a text or pair, cut to what the model reads."""
        tokens, was_cut = classification_input(self.tokenizer, texts, self.max_length)
        self.truncated += was_cut
        return tokens

    def _read(self, rows: Sequence[list[int]], predict: Callable[[Encoding, Sequence[int]], Sequence[T]]) -> list[T]:
        """Encode rows in batches of similar length; `predict` gets an encoding and the indices of its rows."""
        found: dict[int, T] = {}
        with torch.inference_mode():
            for which in _together([len(row) + 2 for row in rows]):
                encoding = self.model(*self.tensors([rows[place] for place in which]))
                found |= zip(which, predict(encoding, which), strict=True)
        return [found[place] for place in range(len(rows))]

    def tensors(self, rows: Sequence[list[int]]) -> tuple[Tensor, Tensor, Tensor]:
        """Add special tokens and pad.  -> tokens, which of them are real, which text each belongs to."""
        special, width = self.tokenizer.specials, max(map(len, rows)) + 2
        tokens = torch.full((len(rows), width), special.pad)
        for place, row in enumerate(rows):
            tokens[place, : len(row) + 2] = torch.tensor([special.start, *row, special.end])
        allowed = torch.arange(width) < torch.tensor([len(row) + 2 for row in rows])[:, None]
        is_end = tokens == special.end
        segments = (is_end.cumsum(dim=1) - is_end.long()).masked_fill(~allowed, 0)
        device = self.model.device
        return tokens.to(device), allowed.to(device), segments.to(device)


def predict_examples(engine: EncoderEngine, task: str, questions: Sequence[Any]) -> list[Any]:
    """Return predictions for examples of an objective: a label, a label per word, or an answer text."""
    if task == "classify":
        return [predicted.label for predicted in engine.label(questions)]
    if task == "tag":
        return [[predicted.label for predicted in words] for words in engine.tag(questions)]
    return [found.text for found in engine.answer([(question, context) for question, context in questions])]


def _together(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield places of similar length, long ones first, so that running out of memory shows early."""
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    start = 0
    while start < len(order):
        count = max(1, BATCH_TOKENS // lengths[order[start]])
        yield order[start : start + count]
        start += count


def _pooled(encoding: Encoding, pool: str) -> Tensor:
    if pool == "first":
        return encoding.states[:, 0]
    if pool == "pooled":
        if encoding.pooled is None:
            raise SettingsError("this model has no pooler; pool by mean or first")
        return encoding.pooled
    real_BN1 = encoding.allowed[:, :, None].to(encoding.states.dtype)
    return (encoding.states * real_BN1).sum(dim=1) / real_BN1.sum(dim=1)


def _best_span(score_2N: Tensor, window: ContextWindow) -> tuple[float, AnswerSpan, float, AnswerSpan]:
    """Return the best span that this window has the most context for: score and span, then those of no answer."""
    start_N, end_N = score_2N.cpu().double()
    low, high = window.inner
    last = window.first + len(window.offsets)
    begins_N, ends_N = start_N.softmax(0), end_N.softmax(0)
    none = float(start_N[0] + end_N[0]), AnswerSpan("", 0, 0, float(begins_N[0] * ends_N[0]))
    if low >= high:
        return -np.inf, AnswerSpan("", 0, 0, 0.0), *none
    score_SE = start_N[low:high, None] + end_N[None, low:last]
    ahead_SE = torch.arange(low, last)[None] - torch.arange(low, high)[:, None]
    score_SE = score_SE.masked_fill((ahead_SE < 0) | (ahead_SE >= LONGEST_ANSWER), -torch.inf)
    best = int(score_SE.argmax())
    first, final = low + best // score_SE.shape[1], low + best % score_SE.shape[1]
    chance = float(begins_N[first] * ends_N[final])
    place = window.offsets[first - window.first][0], window.offsets[final - window.first][1]
    return float(score_SE.max()), AnswerSpan("", *place, chance), *none
