"""What is minimised: cross-entropy under teacher forcing, with smoothed labels (section 5.4)."""

from __future__ import annotations

from transduce.data.batches import Batch
from transduce.models.interface import AnyTransducer
from transduce.nn.cross_entropy import CrossEntropy, linear_cross_entropy


def batch_loss(model: AnyTransducer, batch: Batch, pad: int, smoothing: float) -> CrossEntropy:
    """Read the source, then every target token given the true ones before it, all at once.

    Only real tokens are scored: the output layer is the most expensive one, and padding needs no score.
    """
    memory = model.encode(batch.source, batch.source_allowed)
    hidden_BTD = model(batch.target[:, :-1], memory)
    output_BT = batch.target[:, 1:]
    real_BT = output_BT != pad  # no text has the pad token: the tokenizer never reads it from text
    output = model.output
    return linear_cross_entropy(hidden_BTD[real_BT], output.weight, output.bias, output_BT[real_BT], smoothing)
