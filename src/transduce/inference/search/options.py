"""What a person may ask of a search, what is handed in, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from transduce.config import Config, Table
from transduce.errors import SettingsError

Penalty = Annotated[float, Field(ge=-100.0, le=100.0)]
Share = Annotated[float, Field(gt=0.0, le=1.0)]


class SearchOptions(Config):
    """One request's wishes; the `[search]` table of a recipe holds the usual ones. The defaults are section 6.1's."""

    method: Literal["greedy", "beam", "sample"] = "beam"
    """Take the best token each time, keep several openings alive, or draw each token by its probability."""
    beam_size: Annotated[int, Field(ge=1, le=256)] = 4
    """How many openings a beam search keeps."""
    n_best: Annotated[int, Field(ge=1, le=256)] = 1
    """How many translations to return, best first; of a sample, how many to draw."""
    length_normalization: Literal["gnmt", "power"] = "gnmt"
    """What a score is divided by: ((5 + n) / 6)^alpha (Wu et al. 2016) or n^alpha, n tokens with the end token."""
    length_penalty: Annotated[float, Field(ge=0.0, le=10.0)] = 0.6
    """Strength of the length penalty; 0 compares plain log-probabilities, which favours short answers."""
    stop_rule: Literal["heuristic", "beam_finished", "exact"] = "heuristic"
    """When a beam search ends. beam_finished: as many answers as the beam is wide have ended, as CTranslate2 does.
    heuristic: that, and none that is still being written is better now than what would be returned. exact: none of them
    could become better, however it goes on; slower."""
    coverage_penalty: Annotated[float, Field(ge=0.0, le=10.0)] = 0.0
    """Strength of the coverage penalty (Wu et al. 2016, equation 14): what an answer loses for source tokens that it
    hardly looked at. Finished answers are put in order by it, so it needs a beam, and a model that attends."""
    beam_groups: Annotated[int, Field(ge=1, le=256)] = 1
    """Groups that a beam is divided into, each told apart from those before it (Vijayakumar et al. 2018): the answers
    of an n-best list then come from all of them."""
    diversity_penalty: Annotated[float, Field(ge=0.0, le=100.0)] = 0.5
    """What a group takes off the score of a token for every earlier group's opening that has just chosen it."""
    max_length: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """The most tokens to write, besides a prefix; unless given, as many as the source has plus max_extra."""
    max_extra: Annotated[int, Field(ge=0, le=1_000_000)] = 50
    """How many tokens more than the source has may be written (the paper's rule: input length + 50)."""
    min_length: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """The fewest tokens to write; an answer does not end before."""
    repetition_penalty: Annotated[float, Field(gt=0.0, le=100.0)] = 1.0
    """What the score of a token that was written before is divided by, or multiplied with if it is negative (Keskar et
    al. 2019); 1 does nothing."""
    presence_penalty: Penalty = 0.0
    """What is taken off the score of every token that was written before."""
    frequency_penalty: Penalty = 0.0
    """What is taken off for each time that it was written."""
    no_repeat_ngram_size: Annotated[int, Field(ge=0, le=1000)] = 0
    """How many tokens in a row are never written twice; 0 for no such rule. This and the penalties look at what the
    model still sees: of a text longer than a language model's window, at the end of it."""
    temperature: Annotated[float, Field(gt=0.0, le=100.0)] = 1.0
    """Of a sample: below 1 likely tokens are drawn more often than they are likely, above 1 less often."""
    top_k: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """Draw from so many of the likeliest tokens only; 0 for all."""
    top_p: Share = 1.0
    """Draw from the fewest likeliest tokens that have this probability together (Holtzman et al. 2020)."""
    min_p: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Draw from tokens that have at least this share of the likeliest one's probability (Nguyen et al. 2024)."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    """Makes a sample repeatable: the same source and seed give the same answers, whoever else is asked for."""

    @model_validator(mode="after")
    def _makes_sense(self) -> SearchOptions:
        if self.max_length is not None and self.min_length > self.max_length:
            raise ValueError(f"min_length {self.min_length} is above max_length {self.max_length}; change one of them")
        unused = {name for name in SAMPLING if getattr(self, name) != type(self).model_fields[name].default}
        if unused and self.method != "sample":
            raise ValueError(
                f"{min(unused)} belongs to the method 'sample', not to '{self.method}'; choose that method"
            )
        if self.beam_groups > 1 and (self.method != "beam" or self.beam_size % self.beam_groups):
            raise ValueError(
                f"{self.beam_groups} groups need a beam that divides by {self.beam_groups}; choose such a beam, or fewer groups"
            )
        if self.diversity_penalty != type(self).model_fields["diversity_penalty"].default and self.beam_groups == 1:
            raise ValueError("diversity tells the groups of a beam apart, and there is one only; ask for groups too")
        if self.coverage_penalty and (self.method != "beam" or self.stop_rule == "exact"):
            raise ValueError(
                "coverage puts the answers of a beam search in another order, which the stop rule 'exact' cannot "
                "foresee; choose the method 'beam' and another stop rule, or leave out coverage"
            )
        if self.n_best > self.width:
            raise ValueError(
                f"{self.n_best} translations need a beam of at least {self.n_best}, not {self.width}; "
                "raise beam_size or lower n_best"
            )
        return self

    @property
    def width(self) -> int:
        """Rows that one sentence takes."""
        return {"greedy": 1, "beam": self.beam_size, "sample": self.n_best}[self.method]


SAMPLING = ("temperature", "top_k", "top_p", "min_p", "seed")
"""Options that mean something to a sample only."""
OF_A_BEAM = ("beam_groups", "diversity_penalty", "coverage_penalty")
"""Options that mean something to a beam only, and are refused without one."""


CONTINUING: Table = {"method": "sample", "temperature": 0.8, "max_length": 200}
"""How a language model goes on with a text, unless it was saved with other wishes."""


def continuing(wishes: Table) -> Table:
    """Return the options of a language model with some wishes over them; only a sample has a temperature."""
    usual = CONTINUING if wishes.get("method", "sample") == "sample" else {"max_length": CONTINUING["max_length"]}
    return {**usual, **wishes}


@dataclass(frozen=True)
class Request:
    """One source to translate, in tokens without the end token. The id is the caller's own."""

    id: int
    source: Sequence[int]
    options: SearchOptions
    prefix: Sequence[int] = ()
    """What the answer begins with, in tokens."""
    forbidden: Sequence[Sequence[int]] = ()
    """What is not written, each a few tokens in a row."""
    required: Sequence[Sequence[int]] = ()
    """What has to be written, each a few tokens in a row; needs a beam search."""
    is_over: Callable[[Sequence[int]], bool] | None = None
    """Whether an answer ends here, before the model ends it, by its tokens so far: after a stop string, say."""
    candidates: Sequence[int] | NDArray[np.int64] | None = None
    """The only tokens that may be written, besides the prefix, each once; the end token always may. None for all."""
    first: int | None = None
    """For a language model: the token that stands first, where other answers have the start token. The prefix is then a
    prompt, which is read but not scored."""

    @property
    def unscored(self) -> int:
        """How many tokens of the answer are a prompt."""
        return 0 if self.first is None else len(self.prefix)


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
    """Whether it came to its end, by the model or at a stop string; False when the maximum length cut it off."""


class Result(NamedTuple):
    """A finished request: its hypotheses, best first."""

    id: int
    hypotheses: list[Hypothesis]


# A person's wishes laid over the options that a model was saved with.


def with_wishes(saved_options: SearchOptions, **wishes: Any) -> SearchOptions:
    """Return options with some of them changed; None leaves one as it is. What belongs to one method chooses it."""
    given = {name: value for name, value in wishes.items() if value is not None}
    saved = saved_options.model_dump()
    if "method" not in given and given.keys() & set(SAMPLING):
        given["method"] = "sample"
    elif "method" not in given and (
        "beam_size" in given or (given.get("n_best", 1) > 1 and saved["method"] == "greedy")
    ):
        given["method"] = "beam"
    method = given.get("method", saved["method"])
    if method == "sample" and "beam_size" in given:
        raise SettingsError("a sample draws one token at a time and a beam keeps several openings; ask for one of them")
    if method != saved["method"]:  # what was saved is for another way to search
        saved = {name: value for name, value in saved.items() if name not in (*SAMPLING, *OF_A_BEAM, "n_best")}
    if method == "beam" and given.get("n_best", 1) > 1 and "beam_size" not in given:
        groups = max(1, given.get("beam_groups", saved.get("beam_groups", 1)))
        given["beam_size"] = -(-max(given["n_best"], saved_options.beam_size) // groups) * groups
    if given.get("beam_groups") == 1 and "diversity_penalty" not in given:
        saved.pop("diversity_penalty", None)
    return SearchOptions.from_table({**saved, **given}, "the search")
