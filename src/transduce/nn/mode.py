"""Using a model that may be in the middle of its training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def as_used(model: nn.Module) -> Iterator[None]:
    """Without dropout, and afterwards every part as it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
