"""Halting and coordinates by arithmetic done by hand."""

from __future__ import annotations

import math

import pytest
import torch

from transduce.models.interface import AuxiliaryLoss, collect_losses
from transduce.models.universal import AdaptiveHalting, _step_signal
from transduce.nn.dropout import DropoutKey, set_dropout_key
from transduce.nn.position import RandomOffsets, SinusoidalPositions


def chances(*wanted: float) -> torch.Tensor:
    """Vectors of one channel for which a layer of weight 1 says these probabilities.  -> (1 N 1)."""
    return torch.tensor([[[math.log(chance / (1 - chance))] for chance in wanted]], dtype=torch.float64)


def halting(threshold: float = 0.9) -> AdaptiveHalting:
    made = AdaptiveHalting(1, threshold).double()
    with torch.no_grad():
        made.probability.weight.fill_(1.0)
        made.probability.bias.zero_()
    return made


def test_parts_rests_and_costs_are_those_of_the_paper() -> None:
    """Position 0 says 0.5, 0.3, 0.4 and halts at its third step, position 1 says 0.95 and halts at once, position 2
    says 0.1 three times and is stopped at the last step, position 3 is padding."""
    part, real = halting(), torch.tensor([[True, True, True, False]])
    pondering = part.begin(torch.zeros(1, 4, 1, dtype=torch.float64), real)
    thoughts = [torch.full((1, 4, 1), value, dtype=torch.float64) for value in (10.0, 20.0, 40.0)]
    message = [chances(0.5, 0.95, 0.1, 0.5), chances(0.3, 0.5, 0.1, 0.5), chances(0.4, 0.5, 0.1, 0.5)]
    for step in range(3):
        pondering = part(pondering, message[step], thoughts[step], last=step == 2)
    mixed = [0.5 * 10 + 0.3 * 20 + 0.2 * 40, 10.0, 0.1 * 10 + 0.1 * 20 + 0.8 * 40, 0.0]
    torch.testing.assert_close(pondering.mixed[0, :, 0].tolist(), mixed)
    torch.testing.assert_close(pondering.cost[0].tolist(), [3 + 0.2, 1 + 1.0, 3 + 0.8, 0.0])
    assert pondering.state[0, :, 0].tolist() == [40.0, 10.0, 40.0, 0.0]
    assert not pondering.running.any()


def test_the_cost_pushes_towards_halting() -> None:
    """The rest shrinks when earlier steps give more away, and only the rest has a gradient."""
    part = halting()
    pondering = part.begin(torch.zeros(1, 1, 1, dtype=torch.float64))
    for step in range(2):
        pondering = part(pondering, chances(0.5), torch.zeros(1, 1, 1, dtype=torch.float64), last=step == 1)
    pondering.cost.sum().backward()
    assert part.probability.bias.grad is not None
    assert float(part.probability.bias.grad) == pytest.approx(-0.25)  # d(1 - σ(b)) / db at b = 0


def test_coordinates_are_sinusoids_of_position_and_of_step_counted_from_one() -> None:
    coordinates = SinusoidalPositions(4)
    found = coordinates.at(torch.tensor([[7]]), 8)[0, 0] + _step_signal(coordinates, 2)
    expected = [math.sin(7) + math.sin(3), math.cos(7) + math.cos(3)]
    expected += [math.sin(0.07) + math.sin(0.03), math.cos(0.07) + math.cos(0.03)]
    torch.testing.assert_close(found.tolist(), expected, rtol=0, atol=1e-6)


def test_offsets_are_keyed_by_row_reach_their_bound_and_are_for_training_only() -> None:
    offsets, tokens = RandomOffsets(10), torch.zeros(500, 3, dtype=torch.long)
    set_dropout_key(offsets, DropoutKey(seed=1, update=5))
    whole = offsets(tokens)
    assert set(whole.tolist()) == set(range(11))
    set_dropout_key(offsets, DropoutKey(seed=1, update=5, first_row=100))
    assert torch.equal(offsets(tokens[100:]), whole[100:])
    set_dropout_key(offsets, DropoutKey(seed=1, update=6))
    assert not torch.equal(offsets(tokens), whole)
    assert offsets.eval()(tokens).max() == 0
    assert RandomOffsets(0).train()(tokens).max() == 0


def test_costs_are_collected_inside_the_context_and_discarded_otherwise() -> None:
    place, free = AuxiliaryLoss("target", 0.5), AuxiliaryLoss("source", 0.0)
    place(torch.ones(1, 2))
    with collect_losses([place, free]) as costs:
        place(torch.tensor([[1.0, 3.0]]))
        free(torch.ones(1, 2))
    ((side, cost),) = costs
    assert (side, cost.tolist()) == ("target", [[0.5, 1.5]])
    assert place.collected is None
