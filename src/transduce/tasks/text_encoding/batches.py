"""Batches of a text encoder, and their loss: cross-entropy of its head's predictions.

Masked language modelling with next-sentence prediction has two losses, each the mean over its own targets, which are
added (Devlin et al. 2019, section A.2). Label smoothing, R-Drop and auxiliary losses mean the same as in translation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.data.batching import Batch
from transduce.data.store import ExampleStore
from transduce.models.head import LanguageHead, SpanHead
from transduce.models.interface import EncoderModel, Encoding, Head, collect_losses
from transduce.nn.cpu.cross_entropy import CrossEntropy, linear_cross_entropy, paired_cross_entropy
from transduce.nn.dropout import begin_pass
from transduce.rng import Rows
from transduce.tasks.text_encoding.config import Objective
from transduce.text.tokenizer.special import Specials

NO_LABEL = -1
"""Label of tokens without one."""


@dataclass(frozen=True, kw_only=True)
class EncoderBatch(Batch):
    """Texts with their special tokens, and their labels."""

    tokens: Tensor
    """(B N): start, tokens, end."""
    allowed: Tensor
    """(B N), True where there is a real token."""
    segments: Tensor
    """(B N): which of its texts each token belongs to."""
    labels: Tensor
    """The label of each text (B 1), the first and last token of its answer (B 2), or the label of each token (B N), for
    mask the original token; -1 for none. For mask the first one is whether the second text follows the first."""
    num_rows: int
    """Rows of the whole batch, also in a part of it."""

    @property
    def width(self) -> int:
        return self.tokens.shape[1]


def collate_examples(store: ExampleStore, rows: Rows, special: Specials, objective: Objective) -> EncoderBatch:
    """Return rows of a split as tensors."""
    tokens, lengths = store.tokens.take(rows)
    tokens_BN = _filled(tokens, lengths, special.pad, shift=1, width=int(lengths.max(initial=0)) + 2)
    tokens_BN[:, 0] = special.start
    tokens_BN[np.arange(len(rows)), lengths + 1] = special.end
    allowed_BN = np.arange(tokens_BN.shape[1]) < (lengths + 2)[:, None]
    ended_BN = np.cumsum(tokens_BN == special.end, axis=1) - (tokens_BN == special.end)
    segments_BN = np.where(allowed_BN, ended_BN, 0)
    labels, counts = store.targets.take(rows)
    picked = None
    if objective in ("classify", "answer"):
        label_BN = labels.astype(np.int64).reshape(len(rows), -1)
        count = len(rows) if objective == "classify" else 2 * len(rows)
    else:
        label_BN = _filled(labels, counts, 0, shift=0, width=tokens_BN.shape[1]) - 1
        picked = (label_BN[:, 1:] != NO_LABEL).sum(axis=1)
        count = int(picked.sum())
    return EncoderBatch(
        tokens=torch.from_numpy(tokens_BN),
        allowed=torch.from_numpy(allowed_BN),
        segments=torch.from_numpy(segments_BN),
        labels=torch.from_numpy(label_BN),
        num_target_tokens=max(1, count),
        num_picked=picked,
        num_rows=len(rows),
        rows=rows,
    )


def _filled(
    values: NDArray[np.int64], lengths: NDArray[np.int64], fill: int, shift: int, width: int
) -> NDArray[np.int64]:
    """Write rows of values into a rectangle, `shift` columns from its left."""
    place = np.arange(width)
    table = np.full((len(lengths), width), fill, dtype=np.int64)
    table[(place >= shift) & (place < shift + lengths[:, None])] = values
    return table


def encoder_loss(model: EncoderModel, batch: EncoderBatch, smoothing: float, r_drop: float = 0.0) -> CrossEntropy:
    """Encode the texts, twice with R-Drop, and compare the head's predictions with the labels."""
    twice = r_drop > 0 and model.training

    def forward(number: int) -> Encoding:
        begin_pass(model, number)
        encoding: Encoding = model(batch.tokens, batch.allowed, batch.segments)
        return encoding

    with collect_losses(model.auxiliary_losses) as costs:
        encodings = [forward(number) for number in range(2 if twice else 1)]
    loss = _head_loss(model.head, encodings, batch, smoothing, r_drop)
    for _, cost_BN in costs:
        loss = loss._replace(smoothed=loss.smoothed + cost_BN.sum() / len(encodings))
    return loss


def _head_loss(
    head: Head | None, encodings: list[Encoding], batch: EncoderBatch, smoothing: float, r_drop: float
) -> CrossEntropy:
    if isinstance(head, LanguageHead):
        return _language_loss(head, encodings, batch, smoothing, r_drop)
    if isinstance(head, SpanHead):
        scores, label_N = [head.span_scores(encoding).flatten(0, 1) for encoding in encodings], batch.labels.flatten()
    else:
        assert head is not None, "a text encoder without a head was rejected before"
        scores, label_N = [head(encoding) for encoding in encodings], batch.labels[:, 0]
        if batch.labels.shape[1] > 1:
            pick = batch.picker(batch.labels >= 0)
            scores, label_N = [pick(score) for score in scores], pick(batch.labels)
    return score_cross_entropy(scores, label_N, smoothing, r_drop)


def _language_loss(
    head: LanguageHead, encodings: list[Encoding], batch: EncoderBatch, smoothing: float, r_drop: float
) -> CrossEntropy:
    label_BN = batch.labels.clone()
    label_BN[:, 0] = -1
    pick = batch.picker(label_BN >= 0)
    label_N, vectors = pick(label_BN), [head.vectors(pick(encoding.states)) for encoding in encodings]
    output, half = head.output, head.output.half_products and head.training
    if len(vectors) == 2:
        pair = (vectors[0], vectors[1])
        loss = paired_cross_entropy(pair, output.weight, output.bias, label_N, smoothing, r_drop, half)
    else:
        loss = linear_cross_entropy(vectors[0], output.weight, output.bias, label_N, smoothing, half)
    if head.next_sentence is None:
        return loss
    scores = [head.next_sentence_scores(encoding) for encoding in encodings]
    follows = score_cross_entropy(scores, batch.labels[:, 0], smoothing, r_drop)
    share = batch.num_target_tokens / batch.num_rows  # sums are divided by the masked tokens of the whole batch
    return loss._replace(smoothed=loss.smoothed + share * follows.smoothed)


def score_cross_entropy(scores: list[Tensor], labels: Tensor, smoothing: float, r_drop: float = 0.0) -> CrossEntropy:
    """Compare scores of a few classes with the true ones; minus infinity excludes a class.  (N C), (N) -> sums.

    For two forward passes it is the mean of both, plus α/4 of their disagreement, as in `nn.paired_cross_entropy`.
    """
    logs = [(score if score.dtype.itemsize >= 4 else score.float()).log_softmax(dim=1) for score in scores]
    possible_NC = scores[0] > -torch.inf
    others_N = (possible_NC.sum(dim=1) - 1).clamp(min=1)
    smoothed = logs[0].new_zeros(())
    plain = logs[0].new_zeros(())
    for log_NC in logs:
        true_N = log_NC.gather(1, labels[:, None])[:, 0]
        spread_N = log_NC.masked_fill(~possible_NC, 0.0).sum(dim=1) - true_N
        loss_N = -(1.0 - smoothing) * true_N - smoothing * spread_N / others_N
        smoothed = smoothed + loss_N.sum() / len(logs)
        plain = plain - true_N.detach().sum() / len(logs)
    if len(logs) == 2:
        first, second = (log_NC.masked_fill(~possible_NC, 0.0) for log_NC in logs)
        apart_NC = (first.exp() - second.exp()) * (first - second)
        smoothed = smoothed + r_drop / 4 * apart_NC.sum()
    correct = (logs[0].argmax(dim=1) == labels).sum()
    return CrossEntropy(smoothed, plain, correct)
