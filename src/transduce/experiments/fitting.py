"""Training in a few lines, for claims that need a model of their own: fresh batches, no files, nothing to resume."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from transduce.experiments.finding import Report
from transduce.rng import torch_generator
from transduce.training.schedule import Schedule, linear

REPORT_EVERY = 50
"""Updates between two words to whoever waits."""


def fit(
    model: nn.Module,
    loss_of_batch: Callable[[torch.Generator], Tensor],
    updates: int,
    seed: int,
    report: Report,
    stage: str,
    rate: Schedule | None = None,
    betas: tuple[float, float] = (0.9, 0.98),
    clip: float | None = None,
) -> None:
    """Minimise the loss of batches that are drawn from one generator, and leave the model ready to be used.

    By default the rate rises to 0.003 in a hundred updates and falls in a line; `clip` is the longest gradient.
    """
    generator = torch_generator(seed)
    optimizer = torch.optim.Adam(model.parameters(), betas=betas)
    rate = rate or linear(0.003, min(100, updates), updates)
    model.train()
    for update in range(1, updates + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate(update)
        optimizer.zero_grad()
        loss_of_batch(generator).backward()  # type: ignore[no-untyped-call]
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if update % REPORT_EVERY == 0:
            report(stage, update)
    model.eval()
