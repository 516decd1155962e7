"""Options that say how an answer is searched for: the same names for every verb that writes text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

# Options that say which languages are asked for, for every verb that has a model translate.


def language_options(function: Any) -> Any:
    """Add `--to` and `--from`."""
    told = "The language of the texts, where the model has to be told."
    function = click.option("--from", "of", metavar="LANGUAGE", help=told)(function)
    return click.option("--to", metavar="LANGUAGE", help="The language to ask a model of several for.")(function)


SEARCH = (
    "beam_size",
    "length_penalty",
    "length_normalization",
    "stop_rule",
    "max_length",
    "min_length",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "no_repeat_ngram_size",
    "coverage_penalty",
    "beam_groups",
    "diversity_penalty",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
)
"""Options that are handed to the search as they are."""

_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--greedy", is_flag=True, help="Take the best token each time; faster, a little worse."),
    click.option("--beam-size", type=int, metavar="N", help="Openings that a beam search keeps."),
    click.option(
        "--length-penalty", type=float, metavar="A", help="Strength of the length penalty; 0 switches it off."
    ),
    click.option("--length-normalization", metavar="NAME", help="gnmt: ((5+n)/6)^A, or power: n^A."),
    click.option("--stop-rule", metavar="NAME", help="When a beam search ends: heuristic, beam_finished or exact."),
    click.option(
        "--beam-groups", type=int, metavar="N", help="Divide the beam into N groups that say different things."
    ),
    click.option("--diversity-penalty", type=float, metavar="X", help="How much a group avoids what others say."),
    click.option("--min-length", type=int, metavar="N", help="Fewest tokens of an answer."),
    click.option("--repetition-penalty", type=float, metavar="X", help="Divide scores of written tokens by X."),
    click.option("--presence-penalty", type=float, metavar="X", help="Take X off a token's score once it was written."),
    click.option("--frequency-penalty", type=float, metavar="X", help="Take X off for each time that it was written."),
    click.option("--no-repeat-ngram-size", type=int, metavar="N", help="Write no N tokens in a row twice."),
    click.option("--sample", is_flag=True, help="Draw each token by its probability; --n-best draws several answers."),
    click.option("--temperature", type=float, metavar="T", help="Of a sample: below 1 safer, above 1 wilder."),
    click.option("--top-k", type=int, metavar="N", help="Draw from the N likeliest tokens."),
    click.option("--top-p", type=float, metavar="P", help="Draw from the likeliest tokens that have P together."),
    click.option("--min-p", type=float, metavar="P", help="Draw from tokens at least P times as likely as the best."),
    click.option("--seed", type=int, metavar="N", help="Draw the same answers again the next time."),
    click.option(
        "--forbid", multiple=True, metavar="WORD", help="Not this word, nor what begins as it does; again for more."
    ),
    click.option("--stop-at", multiple=True, metavar="TEXT", help="End an answer before this text; again for more."),
)


def search_options(usual_length: str) -> Callable[[Any], Any]:
    """Add the options of a search; `usual_length` says how long an answer may be unless asked."""
    longest = click.option("--max-length", type=int, metavar="N", help=f"Most tokens of an answer{usual_length}.")

    def add(function: Any) -> Any:
        for option in reversed((*_OPTIONS, longest)):
            function = option(function)
        return function

    return add


def method_of(asked: dict[str, Any]) -> str | None:
    """Which method was asked for, if any."""
    if asked["greedy"] and asked["sample"]:
        raise click.UsageError("--greedy takes the best token and --sample draws one; choose")
    if asked["greedy"] and asked["beam_size"] is not None:
        raise click.UsageError("--greedy takes the best token and --beam-size keeps several; choose")
    return "greedy" if asked["greedy"] else "sample" if asked["sample"] else None
