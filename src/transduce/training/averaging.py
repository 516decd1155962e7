"""The average of several checkpoints' weights, which is often better than any of them (section 6.1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from transduce.checkpoint import load_weights


def average_weights(files: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of each weight over checkpoints, added up in float64, one checkpoint in memory at a time."""
    assert files, "there is nothing to average"
    total: dict[str, Tensor] = {}
    for file in files:
        for name, weight in load_weights(file).items():
            total[name] = total[name] + weight.double() if name in total else weight.double()
    return {name: (weight / len(files)).to(torch.float32) for name, weight in total.items()}
