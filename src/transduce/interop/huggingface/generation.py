"""A model's default search options: Hugging Face's `generation_config.json` <-> our `[search]` table."""

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
"""Generation settings -> search options of the same meaning."""
SAMPLED = {"temperature": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
GENERATION_SETTINGS = {*NUMBERS, *SAMPLED, "num_beams", "do_sample", "length_penalty", "early_stopping", "max_length"}
"""All generation settings that are read."""

UNSUPPORTED = ("coverage_penalty", "beam_groups", "presence_penalty", "frequency_penalty", "seed")
"""Search options without a counterpart in `transformers`."""


def read_search(table: Table, model: Model) -> Table:
    """Return the `[search]` table of a `generation_config.json`; settings without a counterpart are left out."""
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
    """Return the `generation_config.json` of a `[search]` table."""
    options = SearchOptions.from_table(search, "the model folder's search")
    settings: Table = {
        theirs: getattr(options, ours) for theirs, ours in NUMBERS.items() if getattr(options, ours) is not None
    }
    settings = {name: value for name, value in settings.items() if name != "min_new_tokens" or value}
    if options.method == "sample":
        return settings | {"do_sample": True} | {theirs: getattr(options, ours) for theirs, ours in SAMPLED.items()}
    settings |= {"do_sample": False, "num_beams": options.width}
    if options.method == "beam":
        power = options.length_normalization == "power"  # the only one in transformers
        settings |= {
            "length_penalty": options.length_penalty if power else 1.0,
            "early_stopping": options.stop_rule == "beam_finished",
        }
    return settings


def unsupported_options(search: Table) -> list[str]:
    """List options of a `[search]` table that `transformers` lacks, so that its translations may differ."""
    options, defaults = SearchOptions.from_table(search, "the model folder's search"), SearchOptions()
    lost = [f"{name} = {value}" for name in UNSUPPORTED if (value := getattr(options, name)) != getattr(defaults, name)]
    if options.method == "beam" and options.length_normalization != "power" and options.length_penalty:
        lost.append(
            f"length_normalization = '{options.length_normalization}' with length_penalty = {options.length_penalty} "
            "(replaced by power with 1.0)"
        )
    elif options.method == "beam" and options.stop_rule == "heuristic" and options.length_penalty > 1:
        lost.append(
            f"stop_rule = 'heuristic' with length_penalty = {options.length_penalty} (transformers searches on, and "
            "may find longer translations)"
        )
    return lost


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any, default: Any) -> Any:
    return value if _is_number(value) else default
