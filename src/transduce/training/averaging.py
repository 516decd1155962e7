"""The average of several checkpoints' weights, which is often better than any of them (section 6.1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from transduce.checkpoint import WEIGHTS, load_weights


def average_weights(folders: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of each weight over checkpoints, added up in float64, one checkpoint in memory at a time."""
    assert folders, "there is nothing to average"
    total: dict[str, Tensor] = {}
    for folder in folders:
        for name, weight in load_weights(folder / WEIGHTS).items():
            total[name] = total[name] + weight.double() if name in total else weight.double()
    return {name: (weight / len(folders)).to(torch.float32) for name, weight in total.items()}
