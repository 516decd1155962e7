"""Drawn pictures: what a caption says is read off the pixels again, without asking who drew them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from transduce.data.synthetic import COLOURS, KINDS, RELATIONS, SIDE, Scene, SyntheticPictures, spans
from transduce.errors import SettingsError
from transduce.tasks.translation.config import TranslationConfig
from transduce.text.picture import PALETTE


def scenes(pictures: str, size: int = 400, **settings: int | str) -> list[Scene]:
    return list(SyntheticPictures.from_table({"pictures": pictures, "size": size, **settings}, "a test").scenes())


def test_pictures_are_a_function_of_their_settings() -> None:
    corpus = SyntheticPictures(pictures="seen", size=50)
    assert list(corpus.pairs()) == list(corpus.pairs())
    assert [pair.line for pair in corpus.pairs()] == list(range(1, 51))
    assert list(corpus.but(size=20).pairs()) == list(corpus.pairs())[:20]
    assert not {pair.source for pair in corpus.pairs()} & {pair.source for pair in corpus.but(seed=2).pairs()}


def shapes_of(scene: Scene) -> set[tuple[str, ...]]:
    return {(shape.colour, shape.kind) for shape in scene.shapes}


def relations_of(scene: Scene) -> set[tuple[str, ...]]:
    first, *others = scene.shapes
    return {(first.colour, first.kind, " ".join(scene.caption.split()[3:-3])) for _ in others}


@pytest.mark.parametrize(("hold_out", "combinations"), [("shape", shapes_of), ("relation", relations_of)])
def test_a_held_out_combination_is_in_every_held_out_picture_and_in_no_other(
    hold_out: str, combinations: Callable[[Scene], set[tuple[str, ...]]]
) -> None:
    seen, held_out = (
        [combinations(scene) for scene in scenes(which, 6000, hold_out=hold_out)] for which in ("seen", "held_out")
    )
    known = set().union(*seen)
    every = list(product(COLOURS, KINDS, *([RELATIONS] if hold_out == "relation" else [])))
    assert len(known) == 0.75 * len(every)
    assert known | set().union(*held_out) == set(every)
    assert all(each - known for each in held_out)
    for place, words in enumerate((COLOURS, KINDS, RELATIONS)[: len(every[0])]):
        assert {each[place] for each in known} == set(words)
        pairs = {tuple(word for number, word in enumerate(each) if number != place) for each in known}
        assert hold_out == "shape" or len(pairs) == len(every) / len(words), "any two of three occur together"


@pytest.mark.parametrize("which", ["seen", "held_out"])
def test_a_caption_says_what_the_pixels_show(which: str) -> None:
    letters = {name: letter for letter, (name, _) in PALETTE.items()}
    relations = set()
    for scene in scenes(which):
        pixels = np.array(list(scene.picture)).reshape(SIDE, SIDE)
        words = scene.caption.split()
        places = [place for place, word in enumerate(words) if word in letters]
        assert [words[place + 1] for place in places] == [shape.kind for shape in scene.shapes]
        assert {letters[words[place]] for place in places} == set(np.unique(pixels)) - {"w"}
        assert all(words[place - 1] == ("an" if words[place] == "orange" else "a") for place in places)
        if len(places) < 2 or words[places[0]] == words[places[1]]:
            continue  # of two shapes of one colour the pixels do not say which is which
        first, second = (np.argwhere(pixels == letters[words[place]]) for place in places)
        assert np.ptp(first, axis=0).min() > np.ptp(second, axis=0).max(), "the large one is named first"
        down, right = (second.min(axis=0) + second.max(axis=0) - first.min(axis=0) - first.max(axis=0)) / 2
        message = " ".join(words[places[0] + 2 : places[1] - 1])
        assert {"above": down, "below": -down, "left of": right, "right of": -right}[message] >= max(
            abs(down), abs(right)
        )
        relations.add(message)
    assert relations == {"above", "below", "left of", "right of"}


def test_the_words_that_name_a_shape_are_known_and_so_are_its_pixels() -> None:
    for scene in scenes("held_out", 100):
        words, letters = scene.caption.split(), list(scene.picture)
        assert len(scene.named) == 2 * len(scene.shapes)
        for place, shape in scene.named.items():
            assert words[place] in (PALETTE[shape.colour][0], shape.kind)
        covered = {pixel: shape.colour for shape in scene.shapes for pixel in shape.pixels()}
        assert {(n // SIDE, n % SIDE): letter for n, letter in enumerate(letters) if letter != "w"} == covered


@pytest.mark.parametrize("size", [7, 9, 13, 15])
def test_shapes_of_one_size_fill_it_and_differ(size: int) -> None:
    drawn = {kind: spans(kind, size) for kind in KINDS}
    assert len(set(drawn.values())) == len(KINDS)
    for kind, rows in drawn.items():
        assert len(rows) == size and (min(rows)[0], max(end for _, end in rows)) == (0, size), kind
        assert all(start + end == size and start < end for start, end in rows), "left and right are alike"
    for kind in ("circle", "square", "cross", "diamond"):
        assert drawn[kind] == drawn[kind][::-1], "top and bottom are alike"
    assert drawn["triangle"][0] == (size // 2, size // 2 + 1) and drawn["triangle"][-1] == (0, size)


def test_a_recipe_can_name_drawn_pictures_and_nonsense_is_rejected() -> None:
    data = TranslationConfig.from_table({"train": {"pictures": "seen", "size": 3}}, "a test")
    assert isinstance(data.train, SyntheticPictures) and data.train.name == "seen pictures (seed 1)"
    single = scenes("seen", 30, max_shapes=1)
    assert all(len(scene.shapes) == 1 for scene in single) and all(len(scene.caption.split()) == 3 for scene in single)
    with pytest.raises(SettingsError, match="pictures"):
        TranslationConfig.from_table({"train": {"pictures": "some", "size": 3}}, "a test")
    with pytest.raises(SettingsError, match="min_shapes 2 is above max_shapes 1"):
        TranslationConfig.from_table(
            {"train": {"pictures": "seen", "size": 3, "min_shapes": 2, "max_shapes": 1}}, "a test"
        )
    with pytest.raises(SettingsError, match="one shape has no relation that could be held out; set max_shapes = 2"):
        scenes("held_out", max_shapes=1)
