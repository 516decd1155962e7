"""The loss of models that write: cross-entropy under teacher forcing, with label smoothing (section 5.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from transduce.data.batching import PairBatch
from transduce.models.interface import AnyTransducer, collect_losses
from transduce.nn.cpu.cross_entropy import CrossEntropy, linear_cross_entropy, paired_cross_entropy
from transduce.nn.dropout import begin_pass

Loss = Callable[[Any, Any, float, float], CrossEntropy]
"""(model, batch, label smoothing, weight of R-Drop) -> sums over the batch's target tokens."""


def transducer_loss(model: AnyTransducer, batch: PairBatch, smoothing: float, r_drop: float = 0.0) -> CrossEntropy:
    """Encode the source, then predict every target token from the reference tokens before it, all at once.

    Only real tokens are scored: the output layer is the most expensive one, and padding needs no score. With
    `r_drop` there are two forward passes with different dropout, whose predictions should agree.
    """
    real_BT = batch.is_predicted  # not by the pad token: an imported tokenizer may pad with the end token
    output_N = batch.target[:, 1:][real_BT]

    def forward(number: int) -> Tensor:
        begin_pass(model, number)
        memory = model.encode(batch.source, batch.source_allowed)
        hidden_BTD: Tensor = model(batch.target[:, :-1], memory)
        return hidden_BTD[real_BT]

    output, half = model.output, model.output.half_products and model.training
    twice = r_drop > 0 and model.training
    with collect_losses(model.auxiliary_losses) as costs:
        hidden = [forward(number) for number in range(2 if twice else 1)]
    if twice:
        pair = (hidden[0], hidden[1])
        loss = paired_cross_entropy(pair, output.weight, output.bias, output_N, smoothing, r_drop, half)
    else:  # the output layer comes last: of a sharded model only modules that have run are gathered
        loss = linear_cross_entropy(hidden[0], output.weight, output.bias, output_N, smoothing, half)
    for side, cost_BN in costs:
        real_cost = cost_BN[real_BT] if side == "target" else cost_BN
        loss = loss._replace(smoothed=loss.smoothed + real_cost.sum() / len(hidden))
    return loss
