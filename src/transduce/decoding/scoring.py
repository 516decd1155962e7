"""How likely a model finds given targets: passes of `forward`, no search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from transduce.decoding.padding import in_batches, source_batch, target_batch
from transduce.models.interface import AnyTransducer
from transduce.text.specials import Specials


@dataclass(frozen=True)
class ScoredTarget:
    """Log-probability of each token of a target, the end token last."""

    token_scores: list[float]
    hits: list[bool]
    """Whether each token is the one the model finds likeliest there."""

    @property
    def log_probability(self) -> float:
        """Of the whole target."""
        return sum(self.token_scores)


def score_pairs(
    model: AnyTransducer,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    source: Specials,
    target: Specials,
) -> list[ScoredTarget | None]:
    """Score any number of pairs, similar lengths together; None for one that is too long to be read at once."""
    return in_batches(score_targets, model, sources, targets, source, target)


def score_targets(
    model: AnyTransducer,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    source: Specials,
    target: Specials,
) -> list[ScoredTarget]:
    """Score each target (tokens without start and end) given its source, as one batch."""
    device = model.output.weight.device
    with torch.inference_mode():
        memory = model.encode(*source_batch(sources, source, device))
        input_BT, output_BT, real_BT = target_batch(targets, target, device)
        score_BTV = model.logits(model(input_BT, memory)).float().log_softmax(dim=-1)
        score_BT = score_BTV.gather(2, output_BT[:, :, None])[:, :, 0]
        hit_BT = score_BTV.argmax(dim=-1) == output_BT
    rows = zip(score_BT.cpu(), hit_BT.cpu(), real_BT.cpu(), strict=True)
    return [ScoredTarget(scores[real].tolist(), hits[real].tolist()) for scores, hits, real in rows]
