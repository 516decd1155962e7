"""The loss of a text encoder: cross-entropy of its head's predictions.

Masked language modelling with next-sentence prediction has two losses, each the mean over its own targets, which are
added (Devlin et al. 2019, section A.2). Label smoothing, R-Drop and auxiliary losses mean the same as in translation.
"""

from __future__ import annotations

import torch
from torch import Tensor

from transduce.models.head import LanguageHead, SpanHead
from transduce.models.interface import EncoderModel, Encoding, Head, collect_losses
from transduce.nn.cpu.cross_entropy import CrossEntropy, linear_cross_entropy, paired_cross_entropy
from transduce.nn.dropout import begin_pass
from transduce.tasks.text_encoding.batches import EncoderBatch


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
        label_N = batch.labels[:, 0] if batch.labels.shape[1] == 1 else batch.labels[batch.labels >= 0]
        picked = slice(None) if batch.labels.shape[1] == 1 else batch.labels >= 0
        scores = [head(encoding)[picked] for encoding in encodings]
    return score_cross_entropy(scores, label_N, smoothing, r_drop)


def _language_loss(
    head: LanguageHead, encodings: list[Encoding], batch: EncoderBatch, smoothing: float, r_drop: float
) -> CrossEntropy:
    label_BN = batch.labels.clone()
    label_BN[:, 0] = -1
    masked_BN = label_BN >= 0
    vectors = [head.vectors(encoding.states[masked_BN]) for encoding in encodings]
    output, half = head.output, head.output.half_products and head.training
    if len(vectors) == 2:
        pair = (vectors[0], vectors[1])
        loss = paired_cross_entropy(pair, output.weight, output.bias, label_BN[masked_BN], smoothing, r_drop, half)
    else:
        loss = linear_cross_entropy(vectors[0], output.weight, output.bias, label_BN[masked_BN], smoothing, half)
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
