"""Memory that the system refused, to this process or to one that trains with it."""

from __future__ import annotations

import torch


class SharedShortage(MemoryError):
    """One of several ranks ran out of memory, and all of them know."""


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether the system refused memory, in any of the ways that it says so."""
    said = str(error).lower()
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and ("can't allocate memory" in said or "out of memory" in said)
    )
