"""A translator whose model copies its input, so that tests see only what is done to the text around the model."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

from tests.unit.inference.search.toy import Prefix, Row, Toy, ToyMemory
from transduce.inference.translator import Translator
from transduce.model_folder import ModelFolder
from transduce.models.transformer import TransformerConfig
from transduce.nn.hook import HookPoint
from transduce.text.tokenizer.tokenizer import Tokenizer, TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer

TEXT = "the quick brown fox jumps over the lazy dog while ten small cats sleep under one old tree, and 東京 ist schön"
WORDS_OF_TEXT = TEXT.split()


@functools.cache
def tokenizer(kind: str) -> Tokenizer:
    """A tokenizer that knows the words of the text above."""
    config = TokenizerConfig(kind=kind, min_frequency=1, vocab_size=500)
    return train_tokenizer(kind, [TEXT, TEXT[4:], TEXT.upper()], config)


class Pointer(Toy):
    """A table that looks at the token that it copies."""

    def __init__(self, row: Row, vocabulary: int, limit: int | None, start_token: int) -> None:
        super().__init__(row, vocabulary, limit, start_token)
        self.cross_attention = nn.ModuleDict({"weight": HookPoint()})

    def forward(self, target: Tensor, memory: ToyMemory) -> Tensor:
        self.cross_attention["weight"](
            torch.eye(target.shape[1], memory.allowed.shape[1]).expand(len(target), 1, -1, -1)
        )
        return super().forward(target, memory)


def copier(kind: str, limit: int | None = None, **search: object) -> Translator:
    """A translator over a model that copies; `limit` is the longest source it reads, with the end token.

    The second best token is always another one, so that there are other answers too.
    """
    known = tokenizer(kind)

    def row(source: Prefix, prefix: Prefix) -> Tensor:
        score_V = torch.full((known.size,), -20.0)
        wanted = source[len(prefix)] if len(prefix) < len(source) else known.end
        score_V[known.size - 1 if wanted < known.size - 1 else known.size - 2] = -3.0
        score_V[wanted] = 0.0
        return score_V.log_softmax(dim=-1)

    model = Pointer(row, known.size, limit, start_token=known.start)
    return Translator(ModelFolder(model, TransformerConfig(), known, known, {"search": search}))
