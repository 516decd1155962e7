"""Generated text in which a word decides the answer many words later.

"the capital of France , which … , is Paris": the clause has any number of words, some of them other countries. The
words are drawn at random, so that nothing but the deciding country helps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

CAPITALS = {
    "Austria": "Vienna", "Belgium": "Brussels", "Bulgaria": "Sofia", "Canada": "Ottawa", "Chile": "Santiago",
    "China": "Beijing", "Cuba": "Havana", "Denmark": "Copenhagen", "Egypt": "Cairo", "England": "London",
    "Finland": "Helsinki", "France": "Paris", "Germany": "Berlin", "Greece": "Athens", "Hungary": "Budapest",
    "India": "Delhi", "Iraq": "Baghdad", "Ireland": "Dublin", "Italy": "Rome", "Japan": "Tokyo",
    "Kenya": "Nairobi", "Norway": "Oslo", "Peru": "Lima", "Poland": "Warsaw", "Portugal": "Lisbon",
    "Russia": "Moscow", "Senegal": "Dakar", "Spain": "Madrid", "Sweden": "Stockholm", "Syria": "Damascus",
    "Thailand": "Bangkok", "Turkey": "Ankara",
}  # fmt: skip
_FILLERS = (
    "I we they saw left found after before during while when where and but or so old new long short quiet busy warm "
    "cold bright dark slow early late river train road tower garden letter song poem window table winter summer "
    "morning evening market harbour forest mountain weeks years days reading walking waiting writing often never once "
    "twice again almost near far under over through around"
)
FILLERS = _FILLERS.split()
WORDS = ("the", "capital", "of", ",", "which", "is", *CAPITALS, *CAPITALS.values(), *FILLERS)
COUNTRY = 6
CITY = COUNTRY + len(CAPITALS)
FILLER = CITY + len(CAPITALS)


class ClauseBatch(NamedTuple):
    """Sentences of one length, without their last word."""

    tokens: Tensor
    """(B T)"""
    answers: Tensor
    """(B), the capitals that follow."""
    decided_at: int
    """Position of the country that decides."""

    @property
    def distance(self) -> int:
        """How many words the deciding one is back, seen from the last."""
        return self.tokens.shape[1] - 1 - self.decided_at


def as_text(tokens: Sequence[int]) -> str:
    """Return the sentence."""
    return " ".join(WORDS[token] for token in tokens)


def sample_sentences(
    distance: int, rows: int, countries: int, generator: torch.Generator, other_countries: float = 0.2
) -> ClauseBatch:
    """Draw sentences with `distance` - 1 words between the country and "is".

    `other_countries` is their share among these words.
    """
    shape = (rows, distance - 1)
    own_B = torch.randint(countries, (rows,), generator=generator)
    step_BN = torch.randint(1, countries, shape, generator=generator)
    other_BN = COUNTRY + (own_B[:, None] + step_BN) % countries
    filler_BN = torch.randint(FILLER, len(WORDS), shape, generator=generator)
    clause_BN = torch.where(torch.rand(shape, generator=generator) < other_countries, other_BN, filler_BN)
    if distance >= 4:
        clause_BN[:, 0], clause_BN[:, 1], clause_BN[:, -1] = map(WORDS.index, (",", "which", ","))
    opening_B3 = torch.tensor([WORDS.index(word) for word in ("the", "capital", "of")]).expand(rows, -1)
    is_B1 = torch.full((rows, 1), WORDS.index("is"))
    tokens_BT = torch.cat([opening_B3, own_B[:, None] + COUNTRY, clause_BN, is_B1], dim=1)
    return ClauseBatch(tokens_BT, own_B + CITY, decided_at=3)
