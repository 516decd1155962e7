"""What a person may ask of a search, what is handed in, and what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from transduce.config import Config


class SearchOptions(Config):
    """One request's wishes; the `[search]` table of a recipe holds the usual ones. The defaults are section 6.1's."""

    method: Literal["greedy", "beam"] = "beam"
    """Take the best token each time, or keep several openings alive."""
    beam: Annotated[int, Field(ge=1, le=256)] = 4
    """How many openings a beam search keeps."""
    nbest: Annotated[int, Field(ge=1, le=256)] = 1
    """How many translations to return, best first."""
    length_penalty: Literal["gnmt", "power"] = "gnmt"
    """What a score is divided by: ((5 + n) / 6)^alpha (Wu et al. 2016) or n^alpha, n tokens without the end token."""
    alpha: Annotated[float, Field(ge=0.0, le=10.0)] = 0.6
    """Strength of the length penalty; 0 compares plain log-probabilities, which favours short answers."""
    stop: Literal["settled", "beam_finished", "exact"] = "settled"
    """When a beam search ends. beam_finished: as many answers as the beam is wide have ended, as CTranslate2 does.
    settled: that, and none that is still being written is better now than what would be returned. exact: none of them
    could become better, however it goes on; slower."""
    max_length: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """The most tokens to write; unless given, as many as the source has plus max_extra."""
    max_extra: Annotated[int, Field(ge=0, le=1_000_000)] = 50
    """How many tokens more than the source has may be written (the paper's rule: input length + 50)."""

    @model_validator(mode="after")
    def _enough_openings(self) -> SearchOptions:
        if self.nbest > self.width:
            raise ValueError(
                f"{self.nbest} translations need a beam of at least {self.nbest}, not {self.width}; "
                "raise beam or lower nbest"
            )
        return self

    @property
    def width(self) -> int:
        """Rows that one sentence takes."""
        return self.beam if self.method == "beam" else 1


@dataclass(frozen=True)
class Request:
    """One source to translate, in tokens without the end token. The id is the caller's own."""

    id: int
    source: Sequence[int]
    options: SearchOptions


@dataclass(frozen=True)
class Hypothesis:
    """One answer."""

    tokens: list[int]
    """Without start and end."""
    score: float
    """The log-probability divided by the length penalty; what hypotheses are ranked by."""
    log_probability: float
    """Of all tokens, and of the end token where there is one."""
    ended: bool = True
    """Whether the model ended it; False when the maximum length cut it off."""


class Result(NamedTuple):
    """A finished request: its hypotheses, best first."""

    id: int
    hypotheses: list[Hypothesis]
