"""Lexical constraints: phrases that must be written, and which beams to keep so that all of them are.

The beam is allocated by how many constraint tokens were written (dynamic beam allocation, Post and Vilar 2018): beams
that have met no constraint yet are not pruned in favour of those that met one early, nor the other way round.

Letters: W beams of one request, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

Phrase = tuple[int, ...]


@dataclass(frozen=True)
class ConstraintProgress:
    """How many tokens of each phrase a beam ends with; all of them once the phrase was written."""

    phrases: tuple[Phrase, ...]
    places: tuple[int, ...]

    @classmethod
    def none(cls, phrases: Sequence[Sequence[int]]) -> ConstraintProgress:
        """Return the progress of an empty hypothesis."""
        return cls(tuple(tuple(phrase) for phrase in phrases), (0,) * len(phrases))

    @property
    def tokens_met(self) -> int:
        """Tokens of the phrases that are complete, and of the one that is nearest to completion.

        Its next token makes this number larger, whatever happens to other phrases that were begun.
        """
        pairs = list(zip(self.phrases, self.places, strict=True))
        whole = sum(place for phrase, place in pairs if place == len(phrase))
        return whole + max((place for phrase, place in pairs if place < len(phrase)), default=0)

    @property
    def is_whole(self) -> bool:
        """Whether every phrase was written."""
        return all(place == len(phrase) for phrase, place in zip(self.phrases, self.places, strict=True))

    def next_tokens(self) -> Iterator[int]:
        """The tokens that would advance some phrase."""
        return (phrase[place] for phrase, place in zip(self.phrases, self.places, strict=True) if place < len(phrase))

    def after(self, token: int) -> ConstraintProgress:
        """Return the progress after one more token."""
        pairs = zip(self.phrases, self.places, strict=True)
        return ConstraintProgress(self.phrases, tuple(_moved(phrase, place, token) for phrase, place in pairs))


def _moved(phrase: Phrase, place: int, token: int) -> int:
    """The longest beginning of a phrase that the hypothesis ends with after one more token; a complete one stays."""
    if place == len(phrase):
        return place
    ending = (*phrase[:place], token)
    return next(size for size in range(len(ending), -1, -1) if ending[len(ending) - size :] == phrase[:size])


class ConstraintCandidate(NamedTuple):
    """One continuation of one beam."""

    score: float
    parent: int
    token: int
    progress: ConstraintProgress


def candidates(score_WV: Tensor, progress: Sequence[ConstraintProgress], end: int) -> list[ConstraintCandidate]:
    """Candidates of a step, best first: the likeliest, the likeliest of each beam, and all that advance a phrase.

    None ends before every phrase was written.
    """
    width, vocabulary = score_WV.shape
    unmet_W = torch.tensor([not one.is_whole for one in progress], device=score_WV.device)
    score_WV[:, end].masked_fill_(unmet_W, -torch.inf)
    likeliest = score_WV.flatten().topk(min(2 * width, width * vocabulary)).indices.tolist()
    own = [parent * vocabulary + token for parent, token in enumerate(score_WV.argmax(dim=1).tolist())]
    advancing = [parent * vocabulary + token for parent, one in enumerate(progress) for token in one.next_tokens()]
    places = sorted({*likeliest, *own, *advancing})
    scores = score_WV.flatten()[torch.tensor(places, device=score_WV.device)].tolist()
    found = [
        ConstraintCandidate(score, place // vocabulary, place % vocabulary, progress[place // vocabulary])
        for score, place in zip(scores, places, strict=True)
        if score > -float("inf")
    ]
    return sorted(found, key=lambda one: -one.score)


def allocate_beam(unfinished: Sequence[ConstraintCandidate], width: int) -> list[ConstraintCandidate]:
    """Choose `width` candidates, best first: in turns the best of those with the most constraint tokens, of the next, …

    A candidate with the most constraint tokens is always kept, and one with more is always among its continuations:
    after as many steps as the phrases have tokens, some beam has written them all.
    """
    banks: dict[int, list[ConstraintCandidate]] = {}
    for one in unfinished:
        after = one._replace(progress=one.progress.after(one.token))
        banks.setdefault(after.progress.tokens_met, []).append(after)
    order = sorted(
        ((turn, -met, one) for met, bank in banks.items() for turn, one in enumerate(bank[:width])),
        key=lambda found: found[:2],
    )
    return sorted((one for _, _, one in order[:width]), key=lambda one: -one.score)
