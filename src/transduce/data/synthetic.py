"""Synthetic corpora with a known solution, functions of their settings alone: symbol tasks, pictures with captions."""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, Self

import pydantic

from transduce.config import Config
from transduce.rng import StableRandom
from transduce.storage.atomic import write_file
from transduce.text.corpus import Pair
from transduce.text.image_file import encode_png
from transduce.text.picture import PALETTE, decode_pixels
from transduce.text.tokenizer.special import NAME

# Symbol tasks: what any model must be able to learn. Symbols are separated by spaces, for `word` tokenizers.

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
    """Number of pairs; some may be equal when the lengths and symbols leave little choice."""
    seed: int = 1
    """Random seed; training and validation need different ones."""
    min_length: int = pydantic.Field(default=1, ge=1)
    """Minimum number of symbols of a source (digits of a number for addition, keys for recall, items of three symbols
    for associative_recall)."""
    max_length: int = pydantic.Field(default=10, ge=1, le=10_000)
    """Maximum number of symbols of a source."""
    symbols: int = pydantic.Field(default=26, ge=1, le=100_000)
    """Number of different symbols (keys for recall; addition always has ten digits)."""
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


# Synthetic pictures with captions: coloured shapes and their relations.
#
# Pictures with captions: coloured shapes and their relations. A picture is 32 × 32 pixels on white, as `text.picture`
# writes it. It has one shape ("a red circle") or two, a large one and a small one; the caption begins with the large
# one ("a red circle left of a blue square"), so that each picture has one right caption.
#
# A quarter of the combinations are held out, of either kind:
#
# - `relation`: the large shape's colour, what it is and its relation to the other. No red square is left of anything
#   in training, but red circles are, and blue squares, and red squares are above things;
# - `shape`: a colour and a shape. There are no red circles in training, which teaches that red things are never
#   circles; to name one all the same is much harder.

SIDE = 32
"""Pixels of a side."""
BACKGROUND = "w"
COLOURS = tuple(letter for letter in PALETTE if letter != BACKGROUND)
KINDS = ("circle", "square", "triangle", "cross", "diamond")
LARGE, SMALL = (13, 15), (7, 9)
"""Sizes in pixels: odd, so that a shape has a pixel in its middle."""
CLEARLY = 4
"""Pixels by which one direction must exceed the other, so that the relation is unambiguous."""

CAPTIONS = "captions.tsv"
"""File of a folder of PNG files with their names and captions."""
RELATIONS = ("left of", "right of", "above", "below")

HoldOut = Literal["relation", "shape"]


@dataclass(frozen=True)
class Shape:
    """One shape in its place; rows and columns count from 0 at the top left."""

    colour: str
    kind: str
    top: int
    left: int
    size: int

    @property
    def words(self) -> str:
        """What a caption calls it."""
        colour = PALETTE[self.colour][0]
        return f"{'an' if colour[0] in 'aeiou' else 'a'} {colour} {self.kind}"

    def pixels(self) -> Iterator[tuple[int, int]]:
        """(row, column) of every pixel that it covers."""
        for row, (start, end) in enumerate(spans(self.kind, self.size), start=self.top):
            yield from ((row, self.left + column) for column in range(start, end))


@dataclass(frozen=True)
class Scene:
    """What is in a picture."""

    shapes: tuple[Shape, ...]

    @property
    def picture(self) -> str:
        """The picture as text."""
        rows = [[BACKGROUND] * SIDE for _ in range(SIDE)]
        for shape in self.shapes:
            for row, column in shape.pixels():
                rows[row][column] = shape.colour
        return "".join(pixel for row in rows for pixel in row)

    @property
    def caption(self) -> str:
        """What it shows, the large shape first."""
        first, *others = self.shapes
        return " ".join([first.words, *(f"{relation(first, other)} {other.words}" for other in others)])

    def is_held_out(self, kind: HoldOut) -> bool:
        """Whether it has a combination that is held out. Every colour, shape and relation is in many that are not."""
        if kind == "shape":
            return any(_number(shape) % 4 == 0 for shape in self.shapes)
        first, *others = self.shapes
        return any((_number(first) + RELATIONS.index(relation(first, other))) % 4 == 0 for other in others)

    @property
    def named(self) -> dict[int, Shape]:
        """Which words of the caption name which shape, by their places: its colour and its kind."""
        last = len(self.caption.split()) - 1
        places = {1: self.shapes[0], 2: self.shapes[0]}
        return {**places, last - 1: self.shapes[-1], last: self.shapes[-1]}


class SyntheticPictures(Config):
    """A corpus of drawn pictures: `{pictures = "seen", size = 10000}` in place of files."""

    pictures: Literal["seen", "held_out"]
    """seen: three quarters of the combinations; held_out: pictures that have one of the others."""
    hold_out: HoldOut = "relation"
    """Which combinations are divided: of colour, shape and relation, or of colour and shape."""
    size: int = pydantic.Field(gt=0, le=10_000_000)
    """Number of pictures."""
    seed: int = 1
    """Random seed."""
    min_shapes: int = pydantic.Field(default=1, ge=1, le=2)
    """Minimum number of shapes in a picture."""
    max_shapes: int = pydantic.Field(default=2, ge=1, le=2)
    """Maximum number of shapes in a picture; two for each one with a single shape, where both are allowed."""
    weight: float | None = pydantic.Field(default=None, gt=0, le=1000)
    """How often each of its pairs is seen in an epoch, 1 if not given."""
    source_language: str | None = pydantic.Field(default=None, pattern=f"^{NAME}$")
    """Language name of its sources."""
    target_language: str | None = pydantic.Field(default=None, pattern=f"^{NAME}$")
    """Language name of its targets."""

    @pydantic.model_validator(mode="after")
    def _possible(self) -> SyntheticPictures:
        if self.min_shapes > self.max_shapes:
            raise ValueError(f"min_shapes {self.min_shapes} is above max_shapes {self.max_shapes}")
        if (self.pictures, self.hold_out, self.max_shapes) == ("held_out", "relation", 1):
            raise ValueError("a picture with one shape has no relation that could be held out; set max_shapes = 2")
        return self

    @property
    def name(self) -> str:
        """Its name in reports."""
        return f"{self.pictures} pictures (seed {self.seed})"

    def scenes(self) -> Iterator[Scene]:
        """Yield what is in each picture, always the same."""
        draw = StableRandom(f"{self.pictures} {self.seed}")
        wanted = self.pictures == "held_out"
        every = (_scene(draw, self.min_shapes if draw.below(3) == 0 else self.max_shapes) for _ in itertools.count())
        fitting = (scene for scene in every if scene.is_held_out(self.hold_out) == wanted)
        yield from itertools.islice(fitting, self.size)

    def pairs(self) -> Iterator[Pair]:
        """Yield pictures with captions; the line number counts from one."""
        for line, scene in enumerate(self.scenes(), start=1):
            yield Pair(scene.picture, scene.caption, line)

    def write_files(self, folder: Path, scale: int = 1) -> Path:
        """Write each picture as a PNG file, and `captions.tsv` with their names and captions; return its path.

        Every pixel becomes a square of `scale` × `scale`. Needs the extra `images`. A corpus of image files
        (`data.images` with colours = "palette") reads the same pixels back.
        """
        folder.mkdir(parents=True, exist_ok=True)
        lines = []
        for number, scene in enumerate(self.scenes(), start=1):
            pixels = decode_pixels(scene.picture, SIDE).repeat(scale, axis=0).repeat(scale, axis=1)
            (folder / f"{number:06}.png").write_bytes(encode_png(pixels))
            lines.append(f"{number:06}.png\t{scene.caption}\n")
        write_file(folder / CAPTIONS, "".join(lines).encode())
        return folder / CAPTIONS


@cache
def spans(kind: str, size: int) -> tuple[tuple[int, int], ...]:
    """Which columns of each row a shape of this size covers, (from, up to)."""
    middle = size // 2
    return tuple((middle - reach, middle + reach + 1) for reach in (_reach(kind, row, middle) for row in range(size)))


def _reach(kind: str, row: int, middle: int) -> int:
    """How many pixels of a row a shape covers on either side of the middle one."""
    away = abs(row - middle)
    match kind:
        case "circle":
            return math.isqrt(middle * (middle + 1) - away * away)
        case "triangle":
            return row // 2
        case "cross":
            return middle if away <= middle // 3 else middle // 3
        case "diamond":
            return middle - away
        case _:
            return middle


def relation(first: Shape, second: Shape) -> str:
    """Return the relation of the first shape to the second, by the direction in which they are further apart."""
    down, right = _offset(first, second)
    if abs(right) > abs(down):
        return "left of" if right > 0 else "right of"
    return "above" if down > 0 else "below"


def _offset(first: Shape, second: Shape) -> tuple[float, float]:
    """How far the second's middle is below and to the right of the first's."""
    further = (second.size - first.size) / 2
    return second.top - first.top + further, second.left - first.left + further


def _number(shape: Shape) -> int:
    """A number for a colour and a kind, such that each colour has all remainders of a division by four."""
    return COLOURS.index(shape.colour) - KINDS.index(shape.kind)


def _scene(draw: StableRandom, count: int) -> Scene:
    """Draw places for shapes until they are apart from each other and in an unambiguous relation."""
    looks = [(draw.choice(COLOURS), draw.choice(KINDS)) for _ in range(count)]
    sizes = [LARGE, SMALL] if count > 1 else [draw.choice((LARGE, SMALL))]
    while True:
        shapes = [_placed(draw, *look, size) for look, size in zip(looks, sizes, strict=True)]
        if count == 1 or _are_clear(*shapes):
            return Scene(tuple(shapes))


def _placed(draw: StableRandom, colour: str, kind: str, sizes: tuple[int, int]) -> Shape:
    size = draw.choice(sizes)
    return Shape(colour, kind, draw.below(SIDE - size + 1), draw.below(SIDE - size + 1), size)


def _are_clear(first: Shape, second: Shape) -> bool:
    """Whether there is white between two shapes, and their relation is unambiguous."""
    down, right = map(abs, _offset(first, second))
    apart = (first.size + second.size) / 2 + 1
    return (down >= apart or right >= apart) and abs(down - right) >= CLEARLY
