"""A memory of slots: each step of addressing by arithmetic that can be done by hand."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.models.ancestors.turing_machine import Address, likeness, moved, sharpened, weights_at, written


def drawn(*shape: int, seed: int = 5) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_likeness_is_the_cosine() -> None:
    key, memory = drawn(2, 3, 5), drawn(2, 7, 5, seed=6)
    expected = F.cosine_similarity(key[:, :, None], memory[:, None], dim=-1)
    torch.testing.assert_close(likeness(key, memory), expected)


def test_moving_goes_round_the_memory_in_the_paper_s_direction() -> None:
    """Equation 8: what is at place i comes from place i - j with weight s(j)."""
    weights, shift = drawn(2, 3, 7).softmax(-1), drawn(2, 3, 5, seed=8).softmax(-1)
    found = moved(weights, shift)
    for place in range(7):
        expected = sum(weights[..., (place - distance) % 7] * shift[..., distance + 2] for distance in range(-2, 3))
        torch.testing.assert_close(found[..., place], expected)


def test_sharpening_is_a_power_normalised_also_where_powers_vanish() -> None:
    weights, sharpness = drawn(2, 3, 7).softmax(-1), drawn(2, 3, 1, seed=9).abs() + 1
    power = weights**sharpness
    torch.testing.assert_close(sharpened(weights, sharpness), power / power.sum(-1, keepdim=True))
    even = torch.full((1, 1, 128), 1 / 128)
    torch.testing.assert_close(sharpened(even, torch.tensor([[[40.0]]])), even)


def test_weights_follow_content_place_or_both_as_the_gate_says() -> None:
    memory, before = torch.eye(5, dtype=torch.float64)[None], drawn(1, 1, 5).softmax(-1)
    stay = torch.tensor([[[0.0, 1.0, 0.0]]], dtype=torch.float64)
    one = torch.ones(1, 1, 1, dtype=torch.float64)

    def looked(gate: float, shift: Tensor) -> Tensor:
        return weights_at(Address(memory[:, 3:4], 100 * one, gate * one, shift, one), before, memory)

    torch.testing.assert_close(looked(0.0, stay), before)
    assert looked(1.0, stay)[0, 0].argmax() == 3 and looked(1.0, stay)[0, 0, 3] > 0.999
    torch.testing.assert_close(looked(0.5, stay), (looked(1.0, stay) + before) / 2)
    assert looked(1.0, stay.roll(1, dims=-1))[0, 0].argmax() == 4


def test_what_heads_say_is_brought_into_range() -> None:
    address = Address.of(20 * drawn(2, 3, 4 + 1 + 1 + 5 + 1), 4, 2)
    assert address.key.abs().max() <= 1 and bool((address.strength >= 0).all()) and bool((address.sharpness >= 1).all())
    assert bool(((address.gate >= 0) & (address.gate <= 1)).all())
    torch.testing.assert_close(address.shift.sum(-1), torch.ones(2, 3, dtype=torch.float64))


def test_writing_wipes_and_adds_place_by_place() -> None:
    """Equations 3 and 4, once for each head: the order of wiping does not matter, nor that of adding."""
    memory, weights = drawn(2, 7, 5), drawn(2, 3, 7, seed=1).softmax(-1)
    erase, add = drawn(2, 3, 5, seed=2).sigmoid(), drawn(2, 3, 5, seed=3)
    expected = memory.clone()
    for head in range(3):
        expected = expected * (1 - weights[:, head, :, None] * erase[:, head, None])
    for head in range(3):
        expected = expected + weights[:, head, :, None] * add[:, head, None]
    torch.testing.assert_close(written(memory, weights, erase, add), expected)
