"""The decoder's past against the plainest model of it: a Python list of tokens for every row."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from transduce.nn.state import KeyValues

LAYERS, HEADS, KEY_DIM, VALUE_DIM = 2, 3, 5, 7
LIKE = torch.zeros(1, dtype=torch.float64)


@dataclass
class Rows:
    """A `KeyValues` and the lists it must agree with: row -> the (keys, values) of each token it has read."""

    state: KeyValues
    truth: list[list[tuple[Tensor, Tensor]]] = field(default_factory=list)

    @classmethod
    def empty(cls, rows: int) -> Rows:
        return cls(KeyValues.empty(LAYERS, rows, HEADS, KEY_DIM, VALUE_DIM, LIKE), [[] for _ in range(rows)])

    def read(self, length: int, counts: list[int] | None) -> None:
        """Write `length` tokens to every row and count all, or only the first `counts[row]`."""
        rows = len(self.truth)
        keys = torch.randn(LAYERS, rows, HEADS, length, KEY_DIM, dtype=torch.float64)
        values = torch.randn(LAYERS, rows, HEADS, length, VALUE_DIM, dtype=torch.float64)
        self.state.reserve(length)
        for layer in range(LAYERS):
            seen = self.state.write(layer, keys[layer], values[layer])
            self._check_seen(layer, keys[layer], values[layer], *seen)
        self.state.advance(length if counts is None else torch.tensor(counts))
        for row, past in enumerate(self.truth):
            read = length if counts is None else counts[row]
            past += [(keys[:, row, :, t], values[:, row, :, t]) for t in range(read)]

    def _check_seen(self, layer: int, key: Tensor, value: Tensor, all_keys: Tensor, all_values: Tensor) -> None:
        """What `write` returns holds each row's past and, right behind it, its new tokens."""
        for row, past in enumerate(self.truth):
            start, end = len(past), len(past) + key.shape[2]
            assert torch.equal(all_keys[row, :, start:end], key[row])
            assert torch.equal(all_values[row, :, start:end], value[row])
            for t, (old_key, old_value) in enumerate(past):
                assert torch.equal(all_keys[row, :, t], old_key[layer])
                assert torch.equal(all_values[row, :, t], old_value[layer])

    def select(self, rows: list[int]) -> Rows:
        return Rows(self.state.select(torch.tensor(rows, dtype=torch.long)), [list(self.truth[row]) for row in rows])

    def join(self, other: Rows) -> Rows:
        return Rows(self.state.join(other.state), self.truth + other.truth)

    def check(self) -> None:
        lengths = [len(past) for past in self.truth]
        assert self.state.lengths.tolist() == lengths
        for row, past in enumerate(self.truth):
            for t, (key, value) in enumerate(past):
                assert torch.equal(self.state.keys[:, row, :, t], key)
                assert torch.equal(self.state.values[:, row, :, t], value)
        if lengths:
            assert self.state.longest == max(lengths)
            assert self.state.uniform == (min(lengths) == max(lengths))
        assert self.state.capacity >= max(lengths, default=0)


@pytest.mark.parametrize("seed", range(12))
def test_any_life_of_a_state_leaves_what_lists_would_hold(seed: int) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    rows = Rows.empty(draw.randint(1, 5))
    for _ in range(25):
        match draw.choice(["step", "step", "extend", "ragged", "select", "join", "reserve"]):
            case "step":
                rows.read(1, None)
            case "extend":
                rows.read(draw.randint(1, 7), None)
            case "ragged":
                length = draw.randint(1, 11)
                rows.read(length, [draw.randint(0, length) for _ in rows.truth])
            case "select":
                chosen = draw.randint(1, 7)
                rows = rows.select([draw.randrange(len(rows.truth)) for _ in range(chosen)])
            case "join":
                other = Rows.empty(draw.randint(1, 3))
                for _ in range(draw.randint(0, 2)):
                    other.read(draw.randint(1, 19), None)
                rows = rows.join(other) if draw.random() < 0.5 else other.join(rows)
            case "reserve":
                rows.state.reserve(draw.randint(0, 41))
        rows.check()


def test_a_new_state_has_read_nothing() -> None:
    state = KeyValues.empty(LAYERS, 11, HEADS, KEY_DIM, VALUE_DIM, LIKE)
    assert state.lengths.tolist() == [0] * 11
    assert (state.longest, state.uniform) == (0, True)
    assert state.keys.shape == (LAYERS, 11, HEADS, state.capacity, KEY_DIM)
    assert state.values.shape == (LAYERS, 11, HEADS, state.capacity, VALUE_DIM)
    assert state.keys.dtype == LIKE.dtype


def test_room_is_doubled_so_that_a_long_text_is_not_copied_at_every_step() -> None:
    rows, copies = Rows.empty(2), 0
    for _ in range(100):
        before = rows.state.capacity
        rows.read(1, None)
        copies += rows.state.capacity != before
    assert copies <= 3
    rows.check()


def test_all_rows_can_leave_and_others_come() -> None:
    rows = Rows.empty(3)
    rows.read(5, [5, 2, 0])
    gone = rows.select([])
    gone.check()
    newcomers = Rows.empty(2)
    newcomers.read(1, None)
    joined = gone.join(newcomers)
    joined.check()
    joined.read(3, None)
    joined.check()


def test_rows_that_meet_at_one_length_are_uniform_again() -> None:
    rows = Rows.empty(2)
    rows.read(3, [1, 3])
    assert not rows.state.uniform
    rows.read(2, [2, 0])
    assert rows.state.uniform
    assert rows.state.longest == 3
    rows.read(1, None)
    rows.check()


def test_what_was_selected_from_does_not_change_when_the_selection_is_written() -> None:
    rows = Rows.empty(2)
    rows.read(3, None)
    chosen = rows.select([1, 1, 0])
    chosen.read(2, None)
    rows.check()
    chosen.check()
