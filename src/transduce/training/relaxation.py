"""Relaxed weight sharing: the steps of a recurrence begin with different weights and end with the same.

Kaiser & Sutskever 2016, section 3. They add the distance between the sets to the loss, and weigh it more whenever the
model has got better; here the sets are moved towards their mean after each update, by a share that is a function of the
update alone and ends at 1, so that a run is the same however often it stops.
"""

from __future__ import annotations

from torch import nn

from transduce.nn.active_memory import relaxed_sets


def pull(until: int, update: int) -> float:
    """Return the share of the way to the mean: the square of how much of the time is over, from `until` on 1."""
    return min(1.0, update / until) ** 2


def pull_sets_together(model: nn.Module, until: int, update: int) -> None:
    """Move all sets of weights towards their mean, so that at update `until` they are one; 0 leaves them apart."""
    if until:
        for sets in relaxed_sets(model):
            sets.pull_together(pull(until, update))
