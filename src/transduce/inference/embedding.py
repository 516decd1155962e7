"""Vectors of texts from models that write: an encoder's output or a language model's hidden states, pooled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.errors import SettingsError
from transduce.inference.padding import BATCH_TOKENS, source_batch
from transduce.models.interface import AnyTransducer
from transduce.nn.hook import eval_mode
from transduce.text.tokenizer.special import Specials


class States(NamedTuple):
    """Vectors of a batch, and which of them stand for real tokens."""

    states: Tensor
    """(B M D)"""
    allowed: Tensor
    """(B M)"""


def encoder_states(model: AnyTransducer, specials: Specials) -> Callable[[Sequence[list[int]]], States]:
    """Return what encodes rows of source tokens, each with its end token."""

    def read(rows: Sequence[list[int]]) -> States:
        memory = model.encode(*source_batch(rows, specials, model.device))
        return States(memory.states, memory.allowed)

    return read


def decoder_states(model: AnyTransducer, specials: Specials) -> Callable[[Sequence[list[int]]], States]:
    """Return what reads rows of a language model's tokens: the hidden states before its output layer."""

    def read(rows: Sequence[list[int]]) -> States:
        padded = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(row) for row in rows], batch_first=True, padding_value=specials.pad
        )
        allowed_BT = (torch.arange(padded.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]).to(
            model.device
        )
        tokens_BT = padded.to(model.device)
        memory = model.encode(tokens_BT[:, :0], allowed_BT[:, :0])
        return States(model(tokens_BT, memory), allowed_BT)

    return read


def prompt_rows(tokens: list[int], first: int, limit: int | None) -> list[list[int]]:
    """Return the rows in which a language model with this limit reads a text, each after the first token."""
    length = max(1, (limit or BATCH_TOKENS) - 1)
    return [[first, *tokens[begin : begin + length]] for begin in range(0, max(1, len(tokens)), length)]


def pooled_vectors(
    model: AnyTransducer,
    texts: Sequence[Sequence[list[int]]],
    read: Callable[[Sequence[list[int]]], States],
    pool: str,
    normalize: bool,
) -> NDArray[np.float32]:
    """Return one vector for each text, given as one or several rows of tokens.  -> (texts, D).

    mean: of the vectors of all its tokens; last: of its last token.
    """
    if pool not in ("mean", "last"):
        raise SettingsError(f"unknown pooling '{pool}'; choose mean or last")
    flat = [(number, row) for number, rows in enumerate(texts) for row in rows]
    order = sorted(range(len(flat)), key=lambda place: len(flat[place][1]))
    sums: dict[int, Tensor] = {}
    with torch.inference_mode(), eval_mode(model):
        while order:
            count = max(1, BATCH_TOKENS // (len(flat[order[-1]][1]) + 1))
            batch, order = order[-count:], order[:-count]
            states_BMD, allowed_BM = read([flat[place][1] for place in batch])
            for place, state_MD, real_M in zip(batch, states_BMD.float().cpu(), allowed_BM.cpu(), strict=True):
                sums[place] = torch.cat([state_MD[real_M].sum(dim=0), real_M.sum()[None]])
                if pool == "last":
                    sums[place] = torch.cat([state_MD[real_M][-1], torch.ones(1)])
    vectors = []
    parts = iter(range(len(flat)))
    for rows in texts:
        own = [sums[next(parts)] for _ in rows]
        total = own[-1] if pool == "last" else torch.stack(own).sum(dim=0)
        vectors.append(total[:-1] / total[-1])
    width = model.width if not vectors else vectors[0].shape[0]
    found = torch.stack(vectors) if vectors else torch.zeros(0, width)
    if normalize:
        found = torch.nn.functional.normalize(found, dim=-1)
    return found.numpy()
