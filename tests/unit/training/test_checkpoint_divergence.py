"""The watch over the loss: quiet on clean runs, quick on spikes."""

from __future__ import annotations

import numpy as np
import pytest

from transduce.training.checkpoint import Divergence


def falling(seed: int, updates: int = 2000) -> np.ndarray:
    """A loss like a real one: it falls as a power of the update, with noise of a few per cent."""
    generator = np.random.default_rng(seed)
    update = np.arange(1, updates + 1)
    return (2.0 + 6.0 * update**-0.4) * (1 + 0.05 * generator.standard_normal(updates))


@pytest.mark.parametrize("seed", range(5))
def test_a_clean_run_gives_no_alarm(seed: int) -> None:
    watch = Divergence()
    assert not any(watch.observe(loss) for loss in falling(seed))


@pytest.mark.parametrize("seed", range(3))
def test_single_odd_batches_give_no_alarm(seed: int) -> None:
    losses = falling(seed)
    losses[200::97] *= 2.5
    watch = Divergence()
    assert not any(watch.observe(loss) for loss in losses)


@pytest.mark.parametrize("at", [150, 700, 1900])
def test_a_loss_that_jumps_is_noticed_within_ten_updates_and_once(at: int) -> None:
    losses = falling(1)
    losses[at:] *= 1.6
    watch = Divergence()
    alarms = [update for update, loss in enumerate(losses, start=1) if watch.observe(loss)]
    assert len(alarms) >= 1
    assert at < alarms[0] <= at + 10
    assert len(alarms) <= 3


def test_a_watch_goes_on_from_what_it_remembers() -> None:
    losses = falling(2)
    losses[1200:] *= 2
    whole, first = Divergence(), Divergence()
    expected = [whole.observe(loss) for loss in losses]
    found = [first.observe(loss) for loss in losses[:1000]]
    second = Divergence(**vars(first))
    assert [*found, *(second.observe(loss) for loss in losses[1000:])] == expected
