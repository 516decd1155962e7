"""What is minimised: cross-entropy under teacher forcing, with smoothed labels (section 5.4)."""

from __future__ import annotations

from torch import Tensor

from transduce.data.batches import Batch
from transduce.models.interface import AnyTransducer, EncoderModel, Model, Transducer
from transduce.nn.auxiliary_loss import listening
from transduce.nn.cpu.cross_entropy import CrossEntropy, linear_cross_entropy
from transduce.nn.cpu.r_drop import paired_cross_entropy
from transduce.nn.dropout import begin_pass
from transduce.tasks.text_encoding.batches import ReadingBatch
from transduce.training.reading_objective import reading_loss

AnyBatch = Batch | ReadingBatch
"""Pairs for a transducer, or texts for a reader."""


def batch_loss(model: Model, batch: AnyBatch, smoothing: float, r_drop: float = 0.0) -> CrossEntropy:
    """Return what is minimised, by what the model is: a transducer's loss of pairs, or a reader's of its answers."""
    if isinstance(batch, ReadingBatch):
        assert isinstance(model, EncoderModel), "what is prepared for a reader is read by one"
        return reading_loss(model, batch, smoothing, r_drop)
    assert isinstance(model, Transducer), "pairs are for transducers"
    return pair_loss(model, batch, smoothing, r_drop)


def pair_loss(model: AnyTransducer, batch: Batch, smoothing: float, r_drop: float = 0.0) -> CrossEntropy:
    """Read the source, then every target token given the true ones before it, all at once.

    Only real tokens are scored: the output layer is the most expensive one, and padding needs no score. With
    `r_drop` the model reads everything twice, with different dropout, and both readings should agree.
    """
    real_BT = batch.target_asked  # not by the pad token: an imported tokenizer may fill up with the end token
    output_N = batch.target[:, 1:][real_BT]

    def read(number: int) -> Tensor:
        begin_pass(model, number)
        memory = model.encode(batch.source, batch.source_allowed)
        hidden_BTD: Tensor = model(batch.target[:, :-1], memory)
        return hidden_BTD[real_BT]

    output, half = model.output, model.output.half_products and model.training
    twice = r_drop > 0 and model.training
    with listening(model.extra_losses) as costs:
        hidden = [read(number) for number in range(2 if twice else 1)]
    if twice:
        pair = (hidden[0], hidden[1])
        loss = paired_cross_entropy(pair, output.weight, output.bias, output_N, smoothing, r_drop, half)
    else:  # the output layer is asked for last: of a sharded model only what was read through is whole
        loss = linear_cross_entropy(hidden[0], output.weight, output.bias, output_N, smoothing, half)
    for side, cost_BN in costs:
        real_cost = cost_BN[real_BT] if side == "target" else cost_BN
        loss = loss._replace(smoothed=loss.smoothed + real_cost.sum() / len(hidden))
    return loss
