"""Dropout against its definition: a share of zeros, the rest scaled, the mean kept."""

from __future__ import annotations

import pytest
import torch

from transduce.nn.dropout import Dropout, DropoutKey, WordDropout, set_dropout_key


def test_nothing_is_dropped_outside_training() -> None:
    value = torch.randn(3, 5)
    assert Dropout(0.7).eval()(value) is value


def test_a_rate_of_nothing_drops_nothing() -> None:
    value = torch.randn(3, 5)
    assert Dropout(0.0).train()(value) is value


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_what_stays_is_scaled_so_that_the_mean_stays(rate: float) -> None:
    torch.manual_seed(11)
    dropped = Dropout(rate).train()(torch.ones(100_003))
    scale = torch.tensor(1 / (1 - rate))
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], scale.expand(int(kept.sum())))
    assert float(kept.float().mean()) == pytest.approx(1 - rate, abs=0.01)


def test_a_gradient_passes_where_the_value_did() -> None:
    value = torch.ones(1009, requires_grad=True)
    dropped = Dropout(0.3).train()(value)
    dropped.sum().backward()
    assert value.grad is not None
    assert torch.equal(value.grad, dropped.detach())


def test_what_it_prints_says_its_rate() -> None:
    assert repr(Dropout(0.25)) == "Dropout(rate=0.25)"


def _keyed(rate: float, value: torch.Tensor, key: DropoutKey) -> torch.Tensor:
    dropout = Dropout(rate).train()
    set_dropout_key(dropout, key)
    return dropout(value)


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_a_keyed_mask_meets_its_rate_to_one_in_ten_thousand(rate: float) -> None:
    """Three standard deviations of four million draws are 7e-4; the rule of the mask itself is exact to 1/65,536."""
    dropped = _keyed(rate, torch.ones(2048, 2048), DropoutKey(seed=5, update=3))
    share = float((dropped == 0).double().mean())
    assert abs(share - rate) < 3 * (rate * (1 - rate) / 2048**2) ** 0.5 + 1e-5
    assert abs(Dropout(rate).threshold / 2**16 - rate) < 1e-4
    assert float(dropped.double().mean()) == pytest.approx(1.0, abs=2e-3)


def test_a_keyed_mask_is_the_same_for_a_batch_and_its_slices() -> None:
    value = torch.randn(7, 5, 13)
    whole = _keyed(0.4, value, DropoutKey(1, 2))
    for first in range(7):
        assert torch.equal(_keyed(0.4, value[first:], DropoutKey(1, 2, first_row=first)), whole[first:])


def test_a_keyed_mask_depends_on_every_part_of_its_key() -> None:
    value = torch.ones(3, 101)
    keys = [DropoutKey(1, 2, 3), DropoutKey(2, 2, 3), DropoutKey(1, 3, 3), DropoutKey(1, 2, 4), DropoutKey(2, 1, 3)]
    masks = [_keyed(0.5, value, key) for key in keys]
    for first in range(len(masks)):
        for second in range(first):
            assert not torch.equal(masks[first], masks[second])


def test_sites_and_repeated_calls_have_masks_of_their_own_and_a_new_key_begins_again() -> None:
    model = torch.nn.ModuleList([Dropout(0.5), Dropout(0.5)]).train()
    value = torch.ones(2, 103)
    set_dropout_key(model, DropoutKey(1, 1))
    first, second, again = model[0](value), model[1](value), model[0](value)
    assert not torch.equal(first, second)
    assert not torch.equal(first, again)
    set_dropout_key(model, DropoutKey(1, 1))
    assert torch.equal(model[0](value), first)


def test_keyed_masks_of_neighbouring_updates_are_unrelated() -> None:
    masks = torch.stack([_keyed(0.5, torch.ones(64, 64), DropoutKey(1, update)).flatten() for update in range(64)])
    correlation = torch.corrcoef(masks.double()) - torch.eye(64, dtype=torch.double)
    assert float(correlation.abs().max()) < 5 / 64  # five standard deviations of 4,096 draws


def test_a_gradient_passes_where_a_keyed_value_did() -> None:
    value = torch.ones(7, 11, requires_grad=True)
    dropped = _keyed(0.3, value, DropoutKey(1, 1))
    dropped.sum().backward()
    assert value.grad is not None
    assert torch.equal(value.grad, dropped.detach())


def test_an_empty_batch_passes() -> None:
    assert _keyed(0.5, torch.ones(0, 3), DropoutKey(1, 1)).shape == (0, 3)


def test_word_dropout_takes_whole_vectors_at_its_rate_and_scales_the_rest() -> None:
    dropout = WordDropout(0.25).train()
    set_dropout_key(dropout, DropoutKey(seed=1, update=1))
    dropped = dropout(torch.ones(101, 97, 5))
    per_word = dropped.sum(dim=-1)
    gone = per_word == 0
    assert bool((gone | torch.isclose(per_word, torch.tensor(5 / 0.75))).all())
    assert abs(float(gone.float().mean()) - 0.25) < 4 * (0.25 * 0.75 / (101 * 97)) ** 0.5
    assert torch.equal(dropout.eval()(torch.ones(3, 2, 5)), torch.ones(3, 2, 5))
