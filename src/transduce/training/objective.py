"""What is minimised: cross-entropy under teacher forcing, with smoothed labels (section 5.4)."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.data.batches import Batch
from transduce.models.interface import AnyTransducer


class Loss(NamedTuple):
    """Sums over the real target tokens of a batch, the end token included."""

    smoothed: Tensor
    """What the gradient comes from."""
    plain: Tensor
    """The negative log-likelihood, which perplexity is made of; carries no gradient."""
    correct: Tensor
    """How many tokens the model would have said itself."""


def torch_smoothing(smoothing: float, vocabulary: int) -> float:
    """Translate our smoothing into PyTorch's.

    Ours gives the true token 1 - ε and each of the K - 1 others ε / (K - 1). PyTorch's spreads its ε over all K
    tokens, the true one too: ε · K / (K - 1) there is ε here, exactly.
    """
    return smoothing * vocabulary / (vocabulary - 1) if vocabulary > 1 else 0.0


def batch_loss(model: AnyTransducer, batch: Batch, pad: int, smoothing: float) -> Loss:
    """Read the source, then every target token given the true ones before it, all at once."""
    memory = model.encode(batch.source, batch.source_allowed)
    hidden_BTD = model(batch.target[:, :-1], memory)
    output_BT = batch.target[:, 1:]
    real_BT = _real(output_BT, pad, batch)
    logits_NV = model.logits(hidden_BTD[real_BT])
    output_N = output_BT[real_BT]
    return token_loss(logits_NV, output_N, smoothing)


def token_loss(logits: Tensor, output: Tensor, smoothing: float) -> Loss:
    """Compare scores with the tokens that should have been said.  (N V), (N) -> sums."""
    logits = logits.float()
    epsilon = torch_smoothing(smoothing, logits.shape[-1])
    smoothed = F.cross_entropy(logits, output, label_smoothing=epsilon, reduction="sum")
    with torch.no_grad():
        plain = F.cross_entropy(logits, output, reduction="sum") if epsilon else smoothed.detach()
        correct = (logits.argmax(dim=-1) == output).sum()
    return Loss(smoothed, plain, correct)


def _real(output_BT: Tensor, pad: int, batch: Batch) -> Tensor:
    """Which outputs count. Text may hold a token that looks like padding only behind its end, so the pad id decides."""
    real_BT = output_BT != pad
    assert int(real_BT.sum()) == batch.num_target_tokens, "padding is not where the batch says"
    return real_BT
