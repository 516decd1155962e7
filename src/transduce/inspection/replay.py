"""Taking a finished translation through the model once more, to look at it; a live search is never touched."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from transduce.errors import DataError
from transduce.models.interface import AnyTransducer
from transduce.nn.mode import as_used


def replay(model: AnyTransducer, source_tokens: Sequence[int], target_tokens: Sequence[int]) -> Tensor:
    """Force one translation through the model as it would be used; vector t chose token t + 1.  -> (T D)."""
    if not source_tokens:
        raise DataError("there is nothing to look at: the source has no tokens, not even an end token")
    if len(target_tokens) < 2:
        raise DataError("there is nothing to look at: the target has no token after the start token")
    device = next(model.parameters()).device
    source_1S = torch.tensor([list(source_tokens)], device=device)
    target_1T = torch.tensor([list(target_tokens[:-1])], device=device)
    with as_used(model), torch.no_grad():
        memory = model.encode(source_1S, torch.ones_like(source_1S, dtype=torch.bool))
        hidden: Tensor = model(target_1T, memory)[0]
    return hidden
