"""A small synthetic corpus of facts and questions in the style of bAbI."""

from __future__ import annotations

import random
from collections.abc import Iterator

PEOPLE = ("Anna", "Boris", "Clara", "Dario")
PLACES = ("attic", "cellar", "garden", "kitchen", "stable")
WAYS = ("went to the", "walked to the", "hurried to the")
FACTS_BETWEEN = 2
QUESTIONS = 5


def simple_stories(count: int, seed: int) -> Iterator[str]:
    """Yield the lines of so many stories about who went where: the answer is the last place that somebody went to."""
    draw = random.Random(f"stories {seed}")

    def one_of(some: tuple[str, ...]) -> str:
        return some[int(draw.random() * len(some))]

    for _ in range(count):
        where: dict[str, str] = {}
        number = 0
        for _ in range(QUESTIONS):
            for _ in range(FACTS_BETWEEN):
                number += 1
                person, place = one_of(PEOPLE), one_of(PLACES)
                where[person] = place
                yield f"{number} {person} {one_of(WAYS)} {place}."
            number += 1
            person = one_of(tuple(where))
            yield f"{number} Where is {person}? \t{where[person]}"
