"""Position signals against the paper's formula computed entry by entry, and the learned table's edge."""

from __future__ import annotations

import math

import pytest
import torch

from transduce.errors import DataError
from transduce.nn.position import LearnedPositions, SinusoidalPositions, sinusoids


def signal(position: int, channel: int, dim: int) -> float:
    """PE of section 3.5 for one entry: 2i is the even channel at or below this one."""
    angle = position / 10000 ** ((channel - channel % 2) / dim)
    return math.cos(angle) if channel % 2 else math.sin(angle)


@pytest.mark.parametrize(("length", "dim"), [(1, 1), (11, 2), (7, 5), (13, 8), (3, 17), (101, 6)])
def test_every_entry_is_the_papers_formula(length: int, dim: int) -> None:
    expected = torch.tensor([[signal(t, c, dim) for c in range(dim)] for t in range(length)], dtype=torch.float64)
    torch.testing.assert_close(sinusoids(length, dim), expected, rtol=0, atol=1e-12)


def test_a_shift_is_a_rotation_that_does_not_depend_on_the_position() -> None:
    """The paper's reason for sinusoids: PE(t + k) is a linear function of PE(t)."""
    signals, shift, dim = sinusoids(29, 6), 5, 6
    for channel in range(0, dim, 2):
        angle = shift / 10000 ** (channel / dim)
        turn = torch.tensor(
            [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]], dtype=torch.float64
        )
        pair = signals[:, channel : channel + 2]
        torch.testing.assert_close(pair[shift:], pair[:-shift] @ turn.T, rtol=0, atol=1e-12)


def test_the_table_grows_when_a_longer_text_comes() -> None:
    positions = SinusoidalPositions(7, expected_length=3)
    before = positions.first(3).clone()
    grown = positions.first(11)
    assert torch.equal(grown[:3], before)
    torch.testing.assert_close(grown, sinusoids(11, 7).float(), rtol=0, atol=1e-7)


def test_growing_keeps_the_type_of_numbers() -> None:
    positions = SinusoidalPositions(5, expected_length=2).double()
    assert positions.first(13).dtype == torch.float64


def test_a_table_grown_while_decoding_still_serves_training() -> None:
    positions = SinusoidalPositions(5, expected_length=2)
    with torch.inference_mode():
        positions.first(7)
    embedded = torch.ones(7, 5, requires_grad=True)
    (embedded + positions.first(7)).sum().backward()
    assert embedded.grad is not None


def test_the_sinusoidal_table_is_not_saved_and_has_no_limit() -> None:
    positions = SinusoidalPositions(5)
    assert positions.state_dict() == {}
    assert list(positions.parameters()) == []
    assert positions.limit is None


@pytest.mark.parametrize("kind", ["sinusoidal", "learned"])
def test_at_gives_each_row_the_signals_of_its_own_positions(kind: str) -> None:
    positions = SinusoidalPositions(7, expected_length=3) if kind == "sinusoidal" else LearnedPositions(7, 13)
    if isinstance(positions, LearnedPositions):
        torch.nn.init.normal_(positions.weight)
    wanted = torch.tensor([[0, 5, 2], [11, 12, 1]])
    found = positions.at(wanted, 13)
    assert found.shape == (2, 3, 7)
    everything = positions.first(13)
    for row in range(2):
        for column in range(3):
            assert torch.equal(found[row, column], everything[wanted[row, column]])


def test_a_learned_table_serves_exactly_as_many_positions_as_it_has() -> None:
    positions = LearnedPositions(3, limit=5)
    assert positions.limit == 5
    assert positions.first(5).shape == (5, 3)
    assert positions.at(torch.tensor([[4]]), 5).shape == (1, 1, 3)


@pytest.mark.parametrize("ask", [lambda p: p.first(6), lambda p: p.at(torch.tensor([[5]]), 6)])
def test_a_position_beyond_a_learned_table_is_a_clear_error(ask: object) -> None:
    with pytest.raises(DataError, match="a text of 6 tokens does not fit a model that learned 5 positions; shorten"):
        ask(LearnedPositions(3, limit=5))  # type: ignore[operator]


def test_learned_positions_learn_only_where_they_were_used() -> None:
    positions = LearnedPositions(3, limit=7)
    torch.nn.init.zeros_(positions.weight)
    positions.at(torch.tensor([[1, 1, 5]]), 6).sum().backward()
    assert positions.weight.grad is not None
    assert positions.weight.grad[:, 0].tolist() == [0, 2, 0, 0, 0, 1, 0]
