"""Training in a few lines, for claims that need a model of their own: fresh batches, no files, nothing to resume."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from transduce.reproduce.finding import Report
from transduce.training.schedule import linear

REPORT_EVERY = 50
"""Updates between two words to whoever waits."""


def fit(
    model: nn.Module,
    loss_of_batch: Callable[[torch.Generator], Tensor],
    updates: int,
    seed: int,
    report: Report,
    stage: str,
    learning_rate: float = 0.003,
    warmup: int = 100,
) -> None:
    """Minimise the loss of batches that are drawn from one generator, and leave the model ready to be used."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    rate = linear(learning_rate, min(warmup, updates), updates)
    model.train()
    for update in range(1, updates + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate(update)
        optimizer.zero_grad()
        loss_of_batch(generator).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if update % REPORT_EVERY == 0:
            report(stage, update)
    model.eval()
