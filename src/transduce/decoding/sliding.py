"""How likely a language model finds a text that is longer than it reads: a window slides over it.

Windows of as many tokens as the model reads begin every `stride` tokens. Each token is scored once, by the first window
that has it: the smaller the stride, the more comes before it, and the longer it takes. A stride of the whole window is
the fastest and the hardest on the model; of one token, every token has as much before it as the model can read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from transduce.errors import SettingsError
from transduce.models.interface import AnyTransducer

READ_TOGETHER = 4096
"""Tokens of the windows that are read in one go."""


@dataclass(frozen=True)
class Window:
    """A stretch of a stream of tokens."""

    tokens: list[int]
    """What is read, and one token more."""
    new: int
    """How many of them, at the end, are scored here."""


def windows_of(tokens: Iterable[int], window: int, stride: int) -> Iterator[Window]:
    """Cut a stream into windows; its first token is only read. Nothing is held but one window."""
    if not 1 <= stride <= window:
        raise SettingsError(
            f"a stride of {stride} is not possible with a window of {window} tokens; choose 1 to {window}"
        )
    stream = iter(tokens)
    held = list(itertools.islice(stream, window + 1))
    new = len(held) - 1
    while new > 0:
        yield Window(held, new)
        more = list(itertools.islice(stream, stride))
        held, new = [*held, *more][-(window + 1) :], len(more)


def sliding_scores(model: AnyTransducer, tokens: Iterable[int], window: int, stride: int) -> Iterator[list[float]]:
    """Yield the log-probabilities of a stream's tokens, all but the first, some at a time and in their order."""
    found = windows_of(tokens, window, stride)
    together = max(1, READ_TOGETHER // window)
    while batch := list(itertools.islice(found, together)):
        for alike in (list(group) for _, group in itertools.groupby(batch, key=lambda one: len(one.tokens))):
            yield _score(model, alike)


def _score(model: AnyTransducer, batch: list[Window]) -> list[float]:
    """Score windows of one length."""
    tokens_BT = torch.tensor([one.tokens for one in batch], device=model.output.weight.device)
    with torch.inference_mode():
        memory = model.encode(tokens_BT[:, :0], tokens_BT[:, :0].bool())
        hidden_BTD = model(tokens_BT[:, :-1], memory)
        asked = max(one.new for one in batch)  # what came before is read, but needs no score
        score_BAV = model.logits(hidden_BTD[:, -asked:]).float().log_softmax(dim=-1)
        score_BA = score_BAV.gather(2, tokens_BT[:, -asked:, None])[:, :, 0]
    return [score for one, row in zip(batch, score_BA.tolist(), strict=True) for score in row[asked - one.new :]]
