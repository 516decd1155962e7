"""Generated text in which a word decides the answer many words later.

- `MarkedCountry`, the long clause: "the capital of France , which … , is Paris", with other countries in the clause;
- `AskedCountry`, notes with questions behind them: "… Anna Japan … Omar Peru … : Omar Lima : Anna Tokyo". Any of the
  countries may be asked for, and which one is known at the end only.

The other words are drawn at random, so that nothing but the deciding word helps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

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
_NAMES = (
    "Ada Alan Amir Anna Boris Carl Clara Dora Emil Emma Eric Eva Felix Fatima Greta Hugo Ida Ivan Jane John Karl Lea "
    "Lucy Maria Max Nina Omar Otto Paul Rosa Sara Tom"
)
_FILLERS = (
    "I we they saw left found after before during while when where and but or so old new long short quiet busy warm "
    "cold bright dark slow early late river train road house garden letter song story window table winter summer "
    "morning evening market harbour forest mountain weeks years days reading walking waiting writing often never once "
    "twice again almost near far under over through around"
)
NAMES, FILLERS = _NAMES.split(), _FILLERS.split()
WORDS = ("the", "capital", "of", ",", "which", "is", ":", *CAPITALS, *CAPITALS.values(), *NAMES, *FILLERS)
COUNTRY = 7
CITY = COUNTRY + len(CAPITALS)
NAME = CITY + len(CAPITALS)
FILLER = NAME + len(NAMES)


class ClauseBatch(NamedTuple):
    """Sentences of one length, with their questions."""

    tokens: Tensor
    """(B T)"""
    asked_at: Tensor
    """(Q), the positions after which the answers come."""
    answers: Tensor
    """(B Q), tokens."""
    decided_at: Tensor
    """(B Q), the position of the word that decides."""

    @property
    def distances(self) -> Tensor:
        """How many words back the deciding word is.  -> (B Q)."""
        return self.asked_at - self.decided_at


def as_text(tokens: Sequence[int]) -> str:
    """Return the sentence."""
    return " ".join(WORDS[token] for token in tokens)


class ClauseTask(ABC):
    """A kind of generated text."""

    label: ClassVar[str]
    shortest: ClassVar[int]
    """Length of the shortest text."""

    @abstractmethod
    def sample(self, length: int, rows: int, generator: torch.Generator) -> ClauseBatch:
        """Draw sentences of this length."""

    @abstractmethod
    def lengths(self, distances: Sequence[int]) -> Sequence[int]:
        """Return the lengths of texts that have these distances."""


class MarkedCountry(ClauseTask):
    """One country behind "the capital of", then `length` - 1 words, some of them other countries, and "is"."""

    label = "one country"
    shortest = 1

    def __init__(self, countries: int, other_countries: float = 0.2) -> None:
        """`other_countries` is their share among the words of the clause."""
        self.countries, self.other_countries = countries, other_countries

    def sample(self, length: int, rows: int, generator: torch.Generator) -> ClauseBatch:
        """Draw sentences whose country is `length` words back."""
        shape = (rows, length - 1)
        own_B = torch.randint(self.countries, (rows,), generator=generator)
        step_BN = torch.randint(1, self.countries, shape, generator=generator)
        other_BN = COUNTRY + (own_B[:, None] + step_BN) % self.countries
        filler_BN = torch.randint(FILLER, len(WORDS), shape, generator=generator)
        clause_BN = torch.where(torch.rand(shape, generator=generator) < self.other_countries, other_BN, filler_BN)
        if length >= 4:
            clause_BN[:, 0], clause_BN[:, 1], clause_BN[:, -1] = map(WORDS.index, (",", "which", ","))
        opening_B3 = torch.tensor([WORDS.index(word) for word in ("the", "capital", "of")]).expand(rows, -1)
        is_B1 = torch.full((rows, 1), WORDS.index("is"))
        tokens_BT = torch.cat([opening_B3, own_B[:, None] + COUNTRY, clause_BN, is_B1], dim=1)
        return ClauseBatch(tokens_BT, torch.tensor([3 + length]), own_B[:, None] + CITY, torch.full((rows, 1), 3))

    def lengths(self, distances: Sequence[int]) -> Sequence[int]:
        return distances


class AskedCountry(ClauseTask):
    """A name and its country in every eight words; questions at the end: a name, whose country's capital follows."""

    label = "many countries"
    shortest = 4

    def __init__(self, countries: int, every: int = 8, questions: int = 8) -> None:
        """`every` is the number of words per fact, `questions` the maximum number of questions of a text."""
        self.countries, self.every, self.questions = countries, every, questions

    def sample(self, length: int, rows: int, generator: torch.Generator) -> ClauseBatch:
        """Draw texts of `length` words with their questions; no name has two countries."""
        facts = min(max(1, length // self.every), len(NAMES))
        tokens_BT = torch.randint(FILLER, len(WORDS), (rows, length), generator=generator)
        name_BF = torch.rand(rows, len(NAMES), generator=generator).argsort(dim=1)[:, :facts]
        country_BF = torch.randint(self.countries, (rows, facts), generator=generator)
        within_BF = torch.randint(min(self.every, length) - 1, (rows, facts), generator=generator)
        name_at_BF = torch.arange(facts) * self.every + within_BF
        tokens_BT.scatter_(1, name_at_BF, name_BF + NAME).scatter_(1, name_at_BF + 1, country_BF + COUNTRY)

        chosen_BQ = torch.rand(rows, facts, generator=generator).argsort(dim=1)[:, : self.questions]
        asked_BQ, answer_BQ = name_BF.gather(1, chosen_BQ) + NAME, country_BF.gather(1, chosen_BQ) + CITY
        colon_BQ = torch.full_like(asked_BQ, WORDS.index(":"))
        question_BT = torch.stack([colon_BQ, asked_BQ, answer_BQ], dim=2).flatten(1)
        asked_at_Q = length + 1 + 3 * torch.arange(asked_BQ.shape[1])
        decided_at_BQ = name_at_BF.gather(1, chosen_BQ) + 1
        return ClauseBatch(torch.cat([tokens_BT, question_BT[:, :-1]], dim=1), asked_at_Q, answer_BQ, decided_at_BQ)

    def lengths(self, distances: Sequence[int]) -> Sequence[int]:
        """Return the longest alone: it has the questions of all distances."""
        return [max(distances)] * len(distances)
