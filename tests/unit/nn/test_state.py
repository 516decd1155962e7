"""The decoder's past against the plainest model of it: a Python list of tokens for every row."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from transduce.nn.state import FEWEST, KeyValues

LAYERS, HEADS, KEY_DIM, VALUE_DIM = 2, 3, 5, 7
LIKE = torch.zeros(1, dtype=torch.float64)
Past = list[tuple[Tensor, Tensor]]
"""The (keys, values) of each token that a row has read, each with all layers."""


@dataclass
class Rows:
    """A `KeyValues` and the lists it must agree with, of each sentence, of each row."""

    state: KeyValues
    truth: list[list[Past]]

    @classmethod
    def empty(cls, sentences: int, width: int) -> Rows:
        state = KeyValues.empty(LAYERS, sentences, width, HEADS, (KEY_DIM, VALUE_DIM), LIKE)
        return cls(state, [[[] for _ in range(width)] for _ in range(sentences)])

    @property
    def width(self) -> int:
        return self.state.width

    def read(self, length: int, counts: list[int] | None) -> None:
        """Write `length` tokens to every row and count all, or only the first `counts[sentence]`."""
        sentences, new = len(self.truth), length * self.width
        keys = torch.randn(LAYERS, sentences, HEADS, new, KEY_DIM, dtype=torch.float64)
        values = torch.randn(LAYERS, sentences, HEADS, new, VALUE_DIM, dtype=torch.float64)
        self.state.reserve(length)
        for layer in range(LAYERS):
            self._check_seen(layer, length, keys, values, *self.state.write(layer, keys[layer], values[layer]))
        self.state.advance(length if counts is None else torch.tensor(counts))
        for sentence, rows in enumerate(self.truth):
            for row, past in enumerate(rows):
                read = length if counts is None else counts[sentence]
                past += self._new(keys, values, sentence, row)[:read]

    def _new(self, keys: Tensor, values: Tensor, sentence: int, row: int) -> Past:
        slots = range(row, keys.shape[3], self.width)
        return [(keys[:, sentence, :, slot], values[:, sentence, :, slot]) for slot in slots]

    def _check_seen(
        self, layer: int, length: int, keys: Tensor, values: Tensor, seen_keys: Tensor, seen_values: Tensor
    ) -> None:
        """What a row may look at, of what `write` returns, is its past and then its new tokens up to the one asked."""
        allowed, positions = self.state.allowed(length), self.state.key_positions(length)
        assert positions.shape == (len(self.truth), seen_keys.shape[2])
        if allowed is None:
            allowed = torch.ones(len(self.truth), 1, length * self.width, seen_keys.shape[2], dtype=torch.bool)
        for sentence, rows in enumerate(self.truth):
            for row, past in enumerate(rows):
                whole = past + self._new(keys, values, sentence, row)
                for token in range(length):
                    looked = allowed[sentence, 0, token * self.width + row]
                    expected = whole[: len(past) + token + 1]
                    assert positions[sentence, looked].tolist() == list(range(len(expected)))
                    for found, side in ((seen_keys, 0), (seen_values, 1)):
                        wanted = torch.stack([one[side][layer] for one in expected], dim=1)
                        assert torch.equal(found[sentence][:, looked], wanted)

    def select(self, chosen: list[tuple[int, list[int]]]) -> Rows:
        """(sentence, its rows), for each that stays."""
        rows = [sentence * self.width + row for sentence, own in chosen for row in own]
        state = self.state.select(torch.tensor(rows, dtype=torch.long))
        return Rows(state, [[list(self.truth[sentence][row]) for row in own] for sentence, own in chosen])

    def join(self, other: Rows) -> Rows:
        return Rows(self.state.join(other.state), self.truth + other.truth)

    def check(self) -> None:
        lengths = [len(rows[0]) for rows in self.truth]
        assert self.state.lengths.tolist() == lengths
        if lengths:
            assert self.state.longest == max(lengths)
            assert self.state.uniform == (min(lengths) == max(lengths))
        assert self.state.keys.shape[3] >= self.state.filled >= max(lengths, default=0)


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_any_life_of_a_state_leaves_what_lists_would_hold(seed: int, width: int) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    rows = Rows.empty(draw.randint(1, 4), width)
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
                stay = draw.choices(range(len(rows.truth)), k=draw.randint(1, 5))
                kept = list(range(len(rows.truth))) if draw.random() < 0.4 else stay
                rows = rows.select([(sentence, draw.choices(range(width), k=width)) for sentence in kept])
            case "join":
                other = Rows.empty(draw.randint(1, 3), width)
                for _ in range(draw.randint(0, 2)):
                    other.read(draw.randint(1, 19), None)
                rows = rows.join(other) if draw.random() < 0.5 else other.join(rows)
            case "reserve":
                rows.state.reserve(draw.randint(0, 41))
        rows.check()


def test_a_new_state_has_read_nothing() -> None:
    state = KeyValues.empty(LAYERS, 11, 2, HEADS, (KEY_DIM, VALUE_DIM), LIKE)
    assert state.lengths.tolist() == [0] * 11
    assert (state.longest, state.uniform, state.width, state.filled) == (0, True, 2, 0)
    assert state.keys.shape == (LAYERS, 11, HEADS, 0, KEY_DIM)
    assert state.values.shape == (LAYERS, 11, HEADS, 0, VALUE_DIM)
    assert state.keys.dtype == LIKE.dtype


def test_room_grows_by_halves_so_that_a_long_text_is_not_copied_at_every_step() -> None:
    rows, copies = Rows.empty(2, 1), 0
    for _ in range(100):
        before = rows.state.keys.data_ptr()
        rows.read(1, None)
        copies += rows.state.keys.data_ptr() != before
    assert copies <= 5  # room for 16, 32, 48, 72 and 108 tokens
    rows.check()


def test_what_no_beam_owns_any_more_is_left_behind() -> None:
    """One of three beams is continued each time, so that of every three slots two are nobody's."""
    rows = Rows.empty(2, 3)
    for token in range(200):
        rows.read(1, None)
        rows = rows.select([(sentence, [token % 3] * 3) for sentence in range(2)])
        assert rows.state.filled <= 1.5 * (token + 1) + 3 * FEWEST
    assert rows.state.key_positions(0)[:, 0].tolist() == [0, 0]


def test_slots_that_are_nobodys_have_no_position() -> None:
    rows = Rows.empty(1, 2)
    rows.read(3, None)
    chosen = rows.select([(0, [1, 1])])
    assert chosen.state.key_positions(2).tolist() == [[-1, 0, -1, 1, -1, 2, 3, 3, 4, 4]]


def test_a_sentence_that_leaves_takes_its_slots_along() -> None:
    rows = Rows.empty(1, 2)
    rows.read(50, None)
    newcomer = Rows.empty(1, 2)
    newcomer.read(3, None)
    both = rows.join(newcomer)
    both.read(1, None)
    left = both.select([(1, [0, 1])])
    assert left.state.filled == 8
    left.read(2, None)


def test_beams_that_go_on_from_each_other_copy_nothing() -> None:
    rows = Rows.empty(3, 2)
    rows.read(5, None)
    chosen = rows.select([(sentence, [1, 1]) for sentence in range(3)])
    assert chosen.state.keys.data_ptr() == rows.state.keys.data_ptr()


def test_all_rows_can_leave_and_others_come() -> None:
    rows = Rows.empty(3, 2)
    rows.read(5, [5, 2, 0])
    gone = rows.select([])
    gone.check()
    newcomers = Rows.empty(2, 2)
    newcomers.read(1, None)
    joined = gone.join(newcomers)
    joined.check()
    joined.read(3, None)
    joined.check()


def test_rows_that_meet_at_one_length_are_uniform_again() -> None:
    rows = Rows.empty(2, 1)
    rows.read(3, [1, 3])
    assert not rows.state.uniform
    rows.read(2, [2, 0])
    assert rows.state.uniform
    assert rows.state.longest == 3
    rows.read(1, None)
    rows.check()
