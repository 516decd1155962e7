"""Convolutional gated recurrence against torch's gated cell, and what happens to sets of weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from transduce.models.ancestors import neural_gpu as active_memory
from transduce.models.ancestors.neural_gpu import ConvolutionalGru, GruStack, RelaxedSets, cut_off, image_of, worked

CHANNELS, TAPE, HEIGHT, COLUMNS = 5, 3, 2, 7


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def everywhere(columns: int = COLUMNS) -> Tensor:
    return torch.ones(1, 1, 1, columns, dtype=torch.float64)


@pytest.mark.parametrize("tape", [0, TAPE])
def test_a_kernel_of_one_is_torchs_gated_cell_at_every_place(monkeypatch: pytest.MonkeyPatch, tape: int) -> None:
    """Torch resets after its product and we before ours; where the product goes channel by channel that is the same."""
    monkeypatch.setattr(active_memory, "cut_off", torch.sigmoid)
    monkeypatch.setattr(active_memory, "OPEN", 0.0)
    ours = ConvolutionalGru(CHANNELS, kernel=1, tape=tape).double()
    with torch.no_grad():
        own = ours.candidate.weight[:, :CHANNELS, 0, 0]
        own.copy_(torch.diag(own.diag()))
    image, written = draw(2, CHANNELS, HEIGHT, COLUMNS), draw(2, max(1, tape), HEIGHT, COLUMNS) if tape else None
    keep, read = ours.gates.weight[:, :, 0, 0].chunk(2)
    mixed = torch.cat([read, keep, ours.candidate.weight[:, :, 0, 0]])
    cell = nn.GRUCell(max(1, tape), CHANNELS).double()
    with torch.no_grad():
        cell.weight_hh.copy_(mixed[:, :CHANNELS])
        cell.weight_ih.copy_(mixed[:, CHANNELS:] if tape else torch.zeros_like(cell.weight_ih))
        cell.bias_ih.copy_(torch.cat([*reversed(ours.gates.bias.chunk(2)), ours.candidate.bias]))
        cell.bias_hh.zero_()

    def places(image: Tensor) -> Tensor:
        return image.permute(0, 2, 3, 1).flatten(0, 2)

    given = torch.zeros(2 * HEIGHT * COLUMNS, 1, dtype=torch.float64) if written is None else places(written)
    found = ours(image, everywhere(), written)
    torch.testing.assert_close(places(found), cell(given, places(image)), rtol=0, atol=1e-12)


def test_a_gate_can_be_shut_and_wide_open() -> None:
    assert cut_off(torch.tensor([-9.0, 0.0, 9.0])).tolist() == [0.0, 0.5, 1.0]


def test_what_is_not_there_stays_zero_and_does_not_matter() -> None:
    stack = GruStack(2, CHANNELS, 3).double()
    image, there = draw(1, CHANNELS, HEIGHT, COLUMNS), everywhere().clone()
    there[..., 4:] = 0.0
    wide = stack(image * there, there)
    torch.testing.assert_close(wide[..., :4], stack(image[..., :4], everywhere(4)), rtol=0, atol=1e-12)
    assert wide[..., 4:].abs().max() == 0.0


def test_each_image_is_worked_on_for_as_many_steps_as_it_is_long_by_the_sets_in_turn() -> None:
    class Mark(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

        def forward(self, image: Tensor, there: Tensor) -> Tensor:
            return image * self.factor

    factors = iter([2.0, 3.0])
    sets = RelaxedSets(lambda: Mark(next(factors)), 2)
    found = worked(torch.ones(3, 1, 1, 4), torch.tensor([4, 1, 3]), torch.ones(3, 1, 1, 4), sets)
    assert found[:, 0, 0, 0].tolist() == [36.0, 2.0, 12.0]


def test_sets_are_pulled_to_their_mean_by_a_share_and_then_are_one() -> None:
    sets = RelaxedSets(lambda: nn.Linear(1, 1, bias=False), 3)
    for each, value in zip(sets.sets, (1.0, 2.0, 6.0), strict=True):
        nn.init.constant_(each.weight, value)
    sets.pull_together(0.5)
    assert [each.weight.item() for each in sets.sets] == [2.0, 2.5, 4.5]
    sets.pull_together(1.0)
    assert [each.weight.item() for each in sets.sets] == [3.0, 3.0, 3.0]


def test_an_image_holds_the_sequence_in_its_first_row() -> None:
    vectors = draw(2, COLUMNS, CHANNELS)
    image = image_of(vectors, 3)
    assert image.shape == (2, CHANNELS, 3, COLUMNS)
    assert torch.equal(image[:, :, 0].transpose(1, 2), vectors)
    assert image[:, :, 1:].abs().max() == 0.0
