"""Inputs and outputs of a search: options, requests, hypotheses, results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from transduce.config import Config, Table
from transduce.errors import ModelFolderError, SettingsError

if TYPE_CHECKING:
    from transduce.inference.search.trace import TraceStep

Penalty = Annotated[float, Field(ge=-100.0, le=100.0)]
Share = Annotated[float, Field(gt=0.0, le=1.0)]
LengthNormalization = Literal["gnmt", "power"]
"""Names of the length penalties; `penalty.LENGTH_PENALTIES` has the formula of each."""


class SearchOptions(Config):
    """Options of one request; the `[search]` table of a recipe holds the defaults of a model. The paper's are those of
    section 6.1."""

    method: Literal["greedy", "beam", "sample"] = "beam"
    """Take the most probable token at each step, keep several hypotheses (beam search), or sample each token."""
    beam_size: Annotated[int, Field(ge=1, le=256)] = 4
    """Hypotheses that beam search keeps at each step."""
    n_best: Annotated[int, Field(ge=1, le=256)] = 1
    """Hypotheses to return, best first; with the method 'sample', how many to draw."""
    length_normalization: LengthNormalization = "gnmt"
    """What a log-probability is divided by: ((5 + n) / 6)^length_penalty (gnmt, Wu et al. 2016) or n^length_penalty
    (power), where n counts the tokens with the end token."""
    length_penalty: Annotated[float, Field(ge=0.0, le=10.0)] = 0.6
    """Exponent of the length normalisation; 0 compares plain log-probabilities, which favours short hypotheses."""
    stop_rule: Literal["heuristic", "beam_finished", "exact"] = "heuristic"
    """When beam search stops. beam_finished: beam_size hypotheses are finished, as in CTranslate2. heuristic: that, and
    no unfinished hypothesis scores better now than those that would be returned. exact: no unfinished hypothesis could
    still become better; slower."""
    coverage_penalty: Annotated[float, Field(ge=0.0, le=10.0)] = 0.0
    """Strength of the coverage penalty (Wu et al. 2016, equation 14), which lowers the score of a hypothesis for source
    tokens that it hardly attended to. It reorders finished hypotheses, so it needs beam search and a model with
    cross-attention."""
    beam_groups: Annotated[int, Field(ge=1, le=256)] = 1
    """Groups of diverse beam search (Vijayakumar et al. 2018); an n-best list takes hypotheses from all of them."""
    diversity_penalty: Annotated[float, Field(ge=0.0, le=100.0)] = 0.5
    """Subtracted from the score of a token for each hypothesis of an earlier group that chose it at this step."""
    max_length: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Maximum number of tokens to generate, not counting a prefix; default: the source length plus max_extra."""
    max_extra: Annotated[int, Field(ge=0, le=1_000_000)] = 50
    """Maximum number of tokens beyond the source length (the paper's rule: input length + 50)."""
    min_length: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Minimum number of tokens; the end token is not allowed before."""
    repetition_penalty: Annotated[float, Field(gt=0.0, le=100.0)] = 1.0
    """Divides the logit of every token that was generated before, or multiplies it if it is negative (Keskar et al.
    2019); 1 has no effect."""
    presence_penalty: Penalty = 0.0
    """Subtracted from the logit of every token that was generated before."""
    frequency_penalty: Penalty = 0.0
    """Subtracted from the logit of a token for each time it was generated before."""
    no_repeat_ngram_size: Annotated[int, Field(ge=0, le=1000)] = 0
    """No n-gram of this size is generated twice; 0 turns the rule off. This rule and the penalties see the tokens that
    the model sees: of a text longer than a language model's window, the end of it."""
    temperature: Annotated[float, Field(gt=0.0, le=100.0)] = 1.0
    """Sampling temperature: below 1 likely tokens are drawn more often, above 1 less often."""
    top_k: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """Sample from the k most probable tokens only; 0 for all."""
    top_p: Share = 1.0
    """Sample from the smallest set of most probable tokens with this total probability (Holtzman et al. 2020)."""
    min_p: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Sample from tokens with at least this fraction of the most probable token's probability (Nguyen et al. 2024)."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    """Makes samples repeatable: the same source and seed give the same samples, whatever else is in the batch."""

    @model_validator(mode="after")
    def _check_combination(self) -> SearchOptions:
        if self.max_length is not None and self.min_length > self.max_length:
            raise ValueError(f"min_length {self.min_length} is above max_length {self.max_length}; change one of them")
        unused = {name for name in SAMPLING_OPTIONS if getattr(self, name) != type(self).model_fields[name].default}
        if unused and self.method != "sample":
            raise ValueError(f"{min(unused)} is for sampling, but the method is '{self.method}'; choose 'sample'")
        if self.beam_groups > 1 and (self.method != "beam" or self.beam_size % self.beam_groups):
            raise ValueError(
                f"beam_groups {self.beam_groups} needs a beam_size that is divisible by it; change one of them"
            )
        if self.diversity_penalty != type(self).model_fields["diversity_penalty"].default and self.beam_groups == 1:
            raise ValueError("diversity_penalty has no effect with one group; set beam_groups too")
        if self.coverage_penalty and (self.method != "beam" or self.stop_rule == "exact"):
            raise ValueError(
                "coverage_penalty reorders the finished hypotheses of beam search, which the stop rule 'exact' cannot "
                "foresee; choose the method 'beam' and another stop_rule, or leave out coverage_penalty"
            )
        if self.n_best > self.width:
            raise ValueError(
                f"n_best {self.n_best} needs a beam_size of at least {self.n_best}, not {self.width}; "
                "raise beam_size or lower n_best"
            )
        return self

    @property
    def width(self) -> int:
        """Rows that one request takes in a batch."""
        return {"greedy": 1, "beam": self.beam_size, "sample": self.n_best}[self.method]


SAMPLING_OPTIONS = ("temperature", "top_k", "top_p", "min_p", "seed")
"""Options of the method 'sample'."""
BEAM_OPTIONS = ("beam_groups", "diversity_penalty", "coverage_penalty")
"""Options of the method 'beam', rejected with another one."""

GENERATION_DEFAULTS: Table = {"method": "sample", "temperature": 0.8, "max_length": 200}
"""Search options of a language model that was saved with none."""


def generation_options(overrides: Table) -> Table:
    """Return the defaults of a language model with some overridden; only sampling has a temperature."""
    sampling = overrides.get("method", "sample") == "sample"
    defaults = GENERATION_DEFAULTS if sampling else {"max_length": GENERATION_DEFAULTS["max_length"]}
    return {**defaults, **overrides}


def saved_options(table: Table) -> SearchOptions:
    """Read the options that a model was saved with."""
    try:
        return SearchOptions.from_table(table, "the model folder's search")
    except SettingsError as error:
        raise ModelFolderError(f"{error}; copy the folder again") from None


OTHER_NAMES = {
    "num_beams": "beam_size",
    "num_return_sequences": "n_best",
    "max_new_tokens": "max_length",
    "do_sample": "method='sample'",
    "num_beam_groups": "beam_groups",
    "early_stopping": "stop_rule",
    "min_new_tokens": "min_length",
}
"""Names in Hugging Face's `generate`, and ours."""


def override_options(saved_options: SearchOptions, **overrides: Any) -> SearchOptions:
    """Return saved options with some overridden; None keeps one. An option that only one method has selects it."""
    given = {name: value for name, value in overrides.items() if value is not None}
    if other := next((name for name in given if name in OTHER_NAMES), None):
        raise SettingsError(f"search options: {other} is called {OTHER_NAMES[other]} here")
    saved = saved_options.model_dump()
    if "method" not in given and given.keys() & set(SAMPLING_OPTIONS):
        given["method"] = "sample"
    elif "method" not in given and (
        "beam_size" in given or (given.get("n_best", 1) > 1 and saved["method"] == "greedy")
    ):
        given["method"] = "beam"
    method = given.get("method", saved["method"])
    if method == "sample" and "beam_size" in given:
        raise SettingsError("beam_size is for beam search and the method is 'sample'; choose one of them")
    if method != saved["method"]:  # these options were saved for another method
        saved = {
            name: value for name, value in saved.items() if name not in (*SAMPLING_OPTIONS, *BEAM_OPTIONS, "n_best")
        }
    if method == "beam" and given.get("n_best", 1) > 1 and "beam_size" not in given:
        groups = max(1, given.get("beam_groups", saved.get("beam_groups", 1)))
        given["beam_size"] = -(-max(given["n_best"], saved_options.beam_size) // groups) * groups
    if given.get("beam_groups") == 1 and "diversity_penalty" not in given:
        saved.pop("diversity_penalty", None)
    return SearchOptions.from_table({**saved, **given}, "search options")


@dataclass(frozen=True)
class Request:
    """One source to translate, in tokens without the end token."""

    id: int
    """Chosen by the caller; the result has the same."""
    source: Sequence[int]
    options: SearchOptions
    prefix: Sequence[int] = ()
    """Tokens that every hypothesis begins with."""
    forbidden: Sequence[Sequence[int]] = ()
    """Phrases (token sequences) that are never generated."""
    required: Sequence[Sequence[int]] = ()
    """Phrases that must be generated; needs beam search."""
    should_stop: Callable[[Sequence[int]], bool] | None = None
    """Whether a hypothesis ends here, by its tokens so far: after a stop string, for example."""
    shortlist: Sequence[int] | NDArray[np.int64] | None = None
    """The only tokens that may be generated besides the prefix, each once; the end token is always allowed. None for
    all."""
    first: int | None = None
    """For a language model: the first token, in place of the start token. The prefix is then a prompt, which is read
    but not scored."""
    trace: bool = False
    """Whether to record which candidates were pruned at each step (`Result.trace`)."""

    @property
    def unscored(self) -> int:
        """Number of prompt tokens, which have no score."""
        return 0 if self.first is None else len(self.prefix)

    @property
    def max_total_length(self) -> int:
        """Maximum length of a hypothesis with its prefix, before the limit of the model."""
        options = self.options
        default = max(options.min_length, len(self.source) + options.max_extra)
        return len(self.prefix) + (options.max_length or default)


@dataclass(frozen=True)
class Hypothesis:
    """One finished output of a search."""

    tokens: list[int]
    """Without start and end."""
    score: float
    """The log-probability divided by the length penalty; hypotheses are ranked by it."""
    log_probability: float
    """Of all tokens, with the end token where there is one."""
    ended: bool = True
    """Whether it ended by itself, or at a stop string; False if the maximum length cut it off."""


StreamStep = tuple[list[int], Hypothesis | None]
"""Tokens that no later one can change; at the end of a stream with the best hypothesis, whose tokens they are."""


@dataclass(frozen=True)
class Result:
    """A finished request."""

    id: int
    hypotheses: list[Hypothesis]
    """Best first; empty where the request failed."""
    error: Exception | None = None
    """Why the request failed; others of its batch are not affected."""
    trace: tuple[TraceStep, ...] = ()
    """What was kept and pruned at each step, if `Request.trace` is set."""

    def checked(self) -> list[Hypothesis]:
        """Return the hypotheses, or raise the error of a request that failed."""
        if self.error is not None:
            raise self.error
        return self.hypotheses
