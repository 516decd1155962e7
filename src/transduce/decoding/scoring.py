"""How likely a model finds given targets: passes of `forward`, no search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from transduce.decoding.padding import source_batch, target_batch
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


SCORED_TOGETHER = 4096
"""Tokens a side, padding included, that are scored as one batch; a longer pair is not scored at all."""


def score_pairs(
    model: AnyTransducer,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    source: Specials,
    target: Specials,
) -> list[ScoredTarget | None]:
    """Score any number of pairs, similar lengths together; None for one that is too long to be read at once."""
    limits = [min(limit or SCORED_TOGETHER, SCORED_TOGETHER) for limit in (model.max_source, model.max_target)]
    lengths = [max(len(one), len(other)) for one, other in zip(sources, targets, strict=True)]
    fitting = [row for row in range(len(sources)) if len(sources[row]) < limits[0] and len(targets[row]) < limits[1]]
    order = sorted(fitting, key=lengths.__getitem__)
    found: list[ScoredTarget | None] = [None] * len(sources)
    while order:
        count = max(1, SCORED_TOGETHER // (lengths[order[-1]] + 1))
        batch, order = order[-count:], order[:-count]
        scored = score_targets(model, [sources[row] for row in batch], [targets[row] for row in batch], source, target)
        for row, score in zip(batch, scored, strict=True):
            found[row] = score
    return found


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
