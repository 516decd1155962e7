"""Synthetic tasks with a known solution, as pairs of text: what any model must be able to learn.

Symbols are separated by spaces, for `word` tokenizers. A task's pairs are a function of its settings alone.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator
from typing import Literal, Self

import pydantic

from transduce.config import Config
from transduce.rng import StableRandom
from transduce.text.corpus import Pair
from transduce.text.tokenizer.language_tag import NAME

TaskName = Literal["copy", "reverse", "sort", "addition", "recall", "repeat_copy", "associative_recall"]

MOST_REPEATS = 10
"""Maximum number of copies in repeat_copy."""
MOST_DIGITS = 4000
"""Maximum digits of a number to be added: Python writes out no number of more than 4,300."""
ITEM_LENGTH = 3
"""Symbols of each item of associative_recall."""


class SyntheticTask(Config):
    """A corpus that is generated: `{task = "reverse", size = 10000}` in place of files."""

    task: TaskName
    """copy, reverse, sort; addition of two numbers, digit by digit; recall of a value by its key; repeat_copy, as often
    as asked; associative_recall of the item that followed another."""
    size: int = pydantic.Field(gt=0, le=100_000_000)
    """How many pairs; some may be equal when the lengths and symbols leave little choice."""
    seed: int = 1
    """Another seed gives other pairs; training and validation need different ones."""
    min_length: int = pydantic.Field(default=1, ge=1)
    """Fewest symbols of a source (digits of a number for addition, keys for recall, items of three symbols for
    associative_recall)."""
    max_length: int = pydantic.Field(default=10, ge=1, le=10_000)
    """Most symbols of a source."""
    symbols: int = pydantic.Field(default=26, ge=1, le=100_000)
    """How many different symbols there are (keys for recall; addition always has ten digits)."""
    weight: float | None = pydantic.Field(default=None, gt=0, le=1000)
    """How often each of its pairs is seen in an epoch, 1 if not given."""
    source_language: str | None = pydantic.Field(default=None, pattern=f"^{NAME}$")
    """Language name of its sources."""
    target_language: str | None = pydantic.Field(default=None, pattern=f"^{NAME}$")
    """Language name of its targets: with several tasks, it selects the one to do."""

    @pydantic.model_validator(mode="after")
    def _possible(self) -> Self:
        if self.min_length > self.max_length:
            raise ValueError(f"min_length {self.min_length} is above max_length {self.max_length}")
        if self.task == "recall" and self.max_length > self.symbols:
            raise ValueError(f"recall needs as many symbols as keys: {self.max_length} keys, {self.symbols} symbols")
        if self.task == "addition" and self.max_length > MOST_DIGITS:
            raise ValueError(f"addition has numbers of at most {MOST_DIGITS:,} digits; set max_length to that or less")
        if self.task == "associative_recall" and self.min_length < 2:
            raise ValueError("associative_recall needs at least two items; set min_length to 2 or more")
        return self

    @property
    def name(self) -> str:
        """Its name in reports."""
        return f"{self.task} (seed {self.seed})"

    def pairs(self) -> Iterator[Pair]:
        """Yield the pairs, always the same ones; the line number counts from one."""
        draw = StableRandom(f"{self.task} {self.seed}")
        make = _TASKS[self.task]
        for line in range(1, self.size + 1):
            source, target = make(draw, draw.between(self.min_length, self.max_length), self.symbols)
            yield Pair(" ".join(source), " ".join(target), line)


def symbol(index: int) -> str:
    """Name a symbol: a to z, then a1 to z1, a2 …"""
    round_, letter = divmod(index, 26)
    return f"{string.ascii_lowercase[letter]}{round_ or ''}"


_Sides = tuple[list[str], list[str]]


def _copy(draw: StableRandom, length: int, symbols: int) -> _Sides:
    text = [symbol(index) for index in draw.symbols(length, symbols)]
    return text, text


def _reverse(draw: StableRandom, length: int, symbols: int) -> _Sides:
    text = [symbol(index) for index in draw.symbols(length, symbols)]
    return text, text[::-1]


def _sort(draw: StableRandom, length: int, symbols: int) -> _Sides:
    text = draw.symbols(length, symbols)
    return [symbol(index) for index in text], [symbol(index) for index in sorted(text)]


def _addition(draw: StableRandom, length: int, symbols: int) -> _Sides:
    """Two numbers of the same number of digits, without leading zeros: "1 2 + 3 4" is "4 6"."""
    low = 10 ** (length - 1) if length > 1 else 0
    left, right = (low + draw.below(10**length - low) if length <= 15 else _long(draw, length) for _ in range(2))
    return [*str(left), "+", *str(right)], [*str(left + right)]


def _long(draw: StableRandom, length: int) -> int:
    """A number of more digits than one random fraction holds."""
    return int("".join(map(str, [draw.between(1, 9), *draw.symbols(length - 1, 10)])))


def _recall(draw: StableRandom, length: int, symbols: int) -> _Sides:
    """Keys with values, then a key: "c 9 k 8 j 3 ? ? k" is "8" (Ba et al. 2016, section 4.1)."""
    keys = list(range(symbols))
    for place in range(length):  # the beginning of a Fisher-Yates shuffle: distinct keys
        other = draw.between(place, symbols - 1)
        keys[place], keys[other] = keys[other], keys[place]
    values = draw.symbols(length, 10)
    asked = draw.below(length)
    facts = [text for key, value in zip(keys, values, strict=False) for text in (symbol(key), str(value))]
    return [*facts, "?", "?", symbol(keys[asked])], [str(values[asked])]


def _repeat_copy(draw: StableRandom, length: int, symbols: int) -> _Sides:
    """A sequence and a number: "c k * 3" is "c k c k c k" (Graves et al. 2014, section 4.2)."""
    text, times = [symbol(index) for index in draw.symbols(length, symbols)], draw.between(1, MOST_REPEATS)
    return [*text, "*", str(times)], text * times


def _associative_recall(draw: StableRandom, length: int, symbols: int) -> _Sides:
    """Items, then one of them: ": a b c : d e f : g h i ? d e f" is "g h i" (Graves et al. 2014, section 4.3)."""
    items = [[symbol(index) for index in draw.symbols(ITEM_LENGTH, symbols)] for _ in range(length)]
    asked = draw.below(length - 1)
    shown = [text for item in items for text in (":", *item)]
    return [*shown, "?", *items[asked]], items[asked + 1]


_TASKS: dict[TaskName, Callable[[StableRandom, int, int], _Sides]] = {
    "copy": _copy,
    "reverse": _reverse,
    "sort": _sort,
    "addition": _addition,
    "recall": _recall,
    "repeat_copy": _repeat_copy,
    "associative_recall": _associative_recall,
}
