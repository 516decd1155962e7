"""What an answer has to say: how far an opening has come with it, and which openings to keep so that all of it is said.

The beam is shared out by how much was said already (Post and Vilar 2018): openings that have said nothing yet and wait
for a good place are not pushed out by those that said it early, nor the other way round.

Letters: W openings of the sentence, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

Phrase = tuple[int, ...]


@dataclass(frozen=True)
class Progress:
    """How many tokens of each phrase an opening ends with; all of them once the phrase was said."""

    phrases: tuple[Phrase, ...]
    places: tuple[int, ...]

    @classmethod
    def none(cls, phrases: Sequence[Sequence[int]]) -> Progress:
        """Nothing was said yet."""
        return cls(tuple(tuple(phrase) for phrase in phrases), (0,) * len(phrases))

    @property
    def said(self) -> int:
        """Tokens of the phrases that were said, and of the one that is nearest to being said.

        Its next token makes this number larger, whatever becomes of other phrases that were begun.
        """
        pairs = list(zip(self.phrases, self.places, strict=True))
        whole = sum(place for phrase, place in pairs if place == len(phrase))
        return whole + max((place for phrase, place in pairs if place < len(phrase)), default=0)

    @property
    def is_whole(self) -> bool:
        """Whether everything was said."""
        return all(place == len(phrase) for phrase, place in zip(self.phrases, self.places, strict=True))

    def wanted(self) -> Iterator[int]:
        """The tokens that would bring some phrase further."""
        return (phrase[place] for phrase, place in zip(self.phrases, self.places, strict=True) if place < len(phrase))

    def after(self, token: int) -> Progress:
        """The progress with one more token."""
        pairs = zip(self.phrases, self.places, strict=True)
        return Progress(self.phrases, tuple(_moved(phrase, place, token) for phrase, place in pairs))


def _moved(phrase: Phrase, place: int, token: int) -> int:
    """The longest beginning of a phrase that the answer ends with after one more token; a whole one stays."""
    if place == len(phrase):
        return place
    ending = (*phrase[:place], token)
    return next(size for size in range(len(ending), -1, -1) if ending[len(ending) - size :] == phrase[:size])


class Continuation(NamedTuple):
    """One way to go on."""

    score: float
    parent: int
    token: int
    progress: Progress


def continuations(score_WV: Tensor, progress: Sequence[Progress], end: int) -> list[Continuation]:
    """The ways to go on that are worth a look, best first: the likeliest, the likeliest of each opening, and whatever
    brings a phrase further. None ends before everything was said."""
    width, vocabulary = score_WV.shape
    unsaid_W = torch.tensor([not one.is_whole for one in progress], device=score_WV.device)
    score_WV[:, end].masked_fill_(unsaid_W, -torch.inf)
    likeliest = score_WV.flatten().topk(min(2 * width, width * vocabulary)).indices.tolist()
    own = [parent * vocabulary + token for parent, token in enumerate(score_WV.argmax(dim=1).tolist())]
    wanted = [parent * vocabulary + token for parent, one in enumerate(progress) for token in one.wanted()]
    places = sorted({*likeliest, *own, *wanted})
    scores = score_WV.flatten()[torch.tensor(places, device=score_WV.device)].tolist()
    found = [
        Continuation(score, place // vocabulary, place % vocabulary, progress[place // vocabulary])
        for score, place in zip(scores, places, strict=True)
        if score > -float("inf")
    ]
    return sorted(found, key=lambda one: -one.score)


def shared_out(going: Sequence[Continuation], width: int) -> list[Continuation]:
    """Choose so many continuations, best first: in turns the best of those that have said most, of the next, …

    The one that has said most is always kept, and one that says more is always among what it continues with: after as
    many tokens as the phrases have, there is an opening that has said everything.
    """
    banks: dict[int, list[Continuation]] = {}
    for one in going:
        after = one._replace(progress=one.progress.after(one.token))
        banks.setdefault(after.progress.said, []).append(after)
    order = sorted(
        ((turn, -said, one) for said, bank in banks.items() for turn, one in enumerate(bank[:width])),
        key=lambda found: found[:2],
    )
    return sorted((one for _, _, one in order[:width]), key=lambda one: -one.score)
