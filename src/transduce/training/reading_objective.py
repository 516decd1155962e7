"""What a reader minimises: the cross-entropy of what its head says.

Where pieces are hidden and pairs are asked about too, both losses are means of their own that are added (Devlin et al.
2019, section A.2); smoothed labels, R-Drop and what thinking costs mean the same as for pairs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from transduce.models.head import LanguageHead, SpanHead
from transduce.models.interface import EncoderModel, Head, Reading
from transduce.nn.auxiliary_loss import listening
from transduce.nn.cpu.cross_entropy import CrossEntropy, linear_cross_entropy
from transduce.nn.cpu.r_drop import paired_cross_entropy
from transduce.nn.dropout import begin_pass
from transduce.tasks.text_encoding.batches import ReadingBatch


def reading_loss(model: EncoderModel, batch: ReadingBatch, smoothing: float, r_drop: float = 0.0) -> CrossEntropy:
    """Read the texts, twice if both readings should agree, and compare what is said with what is wanted."""
    twice = r_drop > 0 and model.training

    def read(number: int) -> Reading:
        begin_pass(model, number)
        reading: Reading = model(batch.tokens, batch.allowed, batch.segments)
        return reading

    with listening(model.extra_losses) as costs:
        readings = [read(number) for number in range(2 if twice else 1)]
    loss = _loss_of_answers(model.head, readings, batch, smoothing, r_drop)
    for _, cost_BN in costs:
        loss = loss._replace(smoothed=loss.smoothed + cost_BN.sum() / len(readings))
    return loss


def _loss_of_answers(
    head: Head | None, readings: list[Reading], batch: ReadingBatch, smoothing: float, r_drop: float
) -> CrossEntropy:
    if isinstance(head, LanguageHead):
        return _language_loss(head, readings, batch, smoothing, r_drop)
    if isinstance(head, SpanHead):
        scores, wanted_N = [head.places(reading).flatten(0, 1) for reading in readings], batch.wanted.flatten()
    else:
        assert head is not None, "a reader without a head was refused before"
        wanted_N = batch.wanted[:, 0] if batch.wanted.shape[1] == 1 else batch.wanted[batch.wanted >= 0]
        picked = slice(None) if batch.wanted.shape[1] == 1 else batch.wanted >= 0
        scores = [head(reading)[picked] for reading in readings]
    return score_cross_entropy(scores, wanted_N, smoothing, r_drop)


def _language_loss(
    head: LanguageHead, readings: list[Reading], batch: ReadingBatch, smoothing: float, r_drop: float
) -> CrossEntropy:
    wanted = batch.wanted.clone()
    wanted[:, 0] = -1
    hidden_BN = wanted >= 0
    vectors = [head.vectors(reading.states[hidden_BN]) for reading in readings]
    output, half = head.output, head.output.half_products and head.training
    if len(vectors) == 2:
        pair = (vectors[0], vectors[1])
        loss = paired_cross_entropy(pair, output.weight, output.bias, wanted[hidden_BN], smoothing, r_drop, half)
    else:
        loss = linear_cross_entropy(vectors[0], output.weight, output.bias, wanted[hidden_BN], smoothing, half)
    if head.next_sentence is None:
        return loss
    follows = score_cross_entropy([head.next_sentence_scores(r) for r in readings], batch.wanted[:, 0], smoothing, r_drop)
    share = batch.num_target_tokens / batch.num_rows  # sums are divided by the hidden pieces of the whole batch
    return loss._replace(smoothed=loss.smoothed + share * follows.smoothed)


def score_cross_entropy(scores: list[Tensor], wanted: Tensor, smoothing: float, r_drop: float = 0.0) -> CrossEntropy:
    """Compare scores of few candidates with the true ones; minus infinity stands for none.  (N C), (N) -> sums.

    Of two readings it is the mean of both, and α/4 of what they disagree, as in `nn.paired_cross_entropy`.
    """
    logs = [(score if score.dtype.itemsize >= 4 else score.float()).log_softmax(dim=1) for score in scores]
    possible_NC = scores[0] > -torch.inf
    others_N = (possible_NC.sum(dim=1) - 1).clamp(min=1)
    smoothed = logs[0].new_zeros(())
    plain = logs[0].new_zeros(())
    for log_NC in logs:
        true_N = log_NC.gather(1, wanted[:, None])[:, 0]
        spread_N = log_NC.masked_fill(~possible_NC, 0.0).sum(dim=1) - true_N
        loss_N = -(1.0 - smoothing) * true_N - smoothing * spread_N / others_N
        smoothed = smoothed + loss_N.sum() / len(logs)
        plain = plain - true_N.detach().sum() / len(logs)
    if len(logs) == 2:
        first, second = (log_NC.masked_fill(~possible_NC, 0.0) for log_NC in logs)
        apart_NC = (first.exp() - second.exp()) * (first - second)
        smoothed = smoothed + r_drop / 4 * apart_NC.sum()
    correct = (logs[0].argmax(dim=1) == wanted).sum()
    return CrossEntropy(smoothed, plain, correct)
