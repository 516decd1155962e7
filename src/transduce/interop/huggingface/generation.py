"""How a model searches unless asked: Hugging Face's `generation_config.json`, and our `[search]` table."""

from __future__ import annotations

from typing import Any

from transduce.config import Table
from transduce.inference.search.options import SearchOptions
from transduce.models.interface import LanguageModel, Model

NUMBERS = {
    "no_repeat_ngram_size": "no_repeat_ngram_size",
    "repetition_penalty": "repetition_penalty",
    "min_new_tokens": "min_length",
    "max_new_tokens": "max_length",
}
"""Their wishes that mean the same here under another name."""
SAMPLED = {"temperature": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
WISHES = {*NUMBERS, *SAMPLED, "num_beams", "do_sample", "length_penalty", "early_stopping", "max_length"}
"""All of theirs that mean something here."""

OURS = ("coverage_penalty", "beam_groups", "presence_penalty", "frequency_penalty", "seed")
"""Wishes of ours that they have not."""


def read_search(table: Table, model: Model) -> Table:
    """Return the `[search]` table that stands for their wishes; what has no meaning here is left out."""
    beam = _number(table.get("num_beams"), 1)
    found: Table = {ours: table[theirs] for theirs, ours in NUMBERS.items() if _is_number(table.get(theirs))}
    if table.get("do_sample") is True:
        found |= {"method": "sample"}
        found |= {ours: table[theirs] for theirs, ours in SAMPLED.items() if _is_number(table.get(theirs))}
    elif beam > 1:
        found |= {"method": "beam", "beam_size": beam, "length_normalization": "power"}
        found |= {"length_penalty": max(0.0, _number(table.get("length_penalty"), 1.0))}
        if table.get("early_stopping") is True:
            found["stop_rule"] = "beam_finished"
    else:
        found["method"] = "greedy"
    longest = _number(table.get("max_length"), 0)
    if "max_length" not in found and longest > 0 and not isinstance(model, LanguageModel):
        found["max_length"] = longest
    return SearchOptions.from_table(found, "generation_config.json").to_table() if found else {}


def write_generation(search: Table) -> Table:
    """Return their wishes for a `[search]` table of ours."""
    options = SearchOptions.from_table(search, "the model folder's search")
    wishes: Table = {
        theirs: getattr(options, ours) for theirs, ours in NUMBERS.items() if getattr(options, ours) is not None
    }
    wishes = {name: value for name, value in wishes.items() if name != "min_new_tokens" or value}
    if options.method == "sample":
        return wishes | {"do_sample": True} | {theirs: getattr(options, ours) for theirs, ours in SAMPLED.items()}
    wishes |= {"do_sample": False, "num_beams": options.width}
    if options.method == "beam":
        power = options.length_normalization == "power"  # they have no other
        wishes |= {
            "length_penalty": options.length_penalty if power else 1.0,
            "early_stopping": options.stop_rule == "beam_finished",
        }
    return wishes


def left_out(search: Table) -> list[str]:
    """Say which wishes of a `[search]` table they have nothing for, so that their answers may be others."""
    options, usual = SearchOptions.from_table(search, "the model folder's search"), SearchOptions()
    lost = [f"{name} = {value}" for name in OURS if (value := getattr(options, name)) != getattr(usual, name)]
    if options.method == "beam" and options.length_normalization != "power" and options.length_penalty:
        lost.append(
            f"length_normalization = '{options.length_normalization}' with length_penalty = {options.length_penalty} (1.0 of theirs instead)"
        )
    return lost


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any, otherwise: Any) -> Any:
    return value if _is_number(value) else otherwise
