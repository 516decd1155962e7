"""Search options in requests: bounded by the server's limits, and rejected where they would have no effect."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from transduce.config import Table
from transduce.errors import SettingsError
from transduce.inference.search.options import BEAM_OPTIONS, SAMPLING_OPTIONS, SearchOptions, override_options
from transduce.serving.http import RequestError
from transduce.serving.limits import Limits

MAXIMUM = {
    "beam_size": "max_beam_size",
    "beam_groups": "max_beam_size",
    "n_best": "max_n_best",
    "max_length": "max_length",
    "min_length": "max_length",
    "max_extra": "max_length",
}
"""Options and the limit of each."""

METHOD_OF = {
    **dict.fromkeys(SAMPLING_OPTIONS, "sample"),
    **dict.fromkeys((*BEAM_OPTIONS, "beam_size", "stop_rule"), "beam"),
}
"""Options that only one method has."""


class SearchParameters(SearchOptions):
    """Parameters of a request that are search options; those that are not given keep the model's own."""

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        """Nothing: the options that a request leaves out are the model's, not the defaults of this class."""
        return self

    def given(self) -> Table:
        """The search options that the request gives."""
        names = SearchOptions.model_fields.keys() & self.model_fields_set
        return {name: getattr(self, name) for name in SearchOptions.model_fields if name in names}


def check_search(given: Table, limits: Limits, base: SearchOptions) -> SearchOptions:
    """Check options against the limits and each other; raises RequestError (422) with the option's name.

    `base` stands for the options of the model, which only the engine knows: it checks once more against those.
    """
    for name, limit in MAXIMUM.items():
        most = getattr(limits, limit)
        if given.get(name, 0) > most:
            raise RequestError(422, f"{name} is {given[name]:,}; at most {most:,} is allowed", name)
    try:
        options = override_options(base, **given)
    except SettingsError as error:
        message = str(error).removeprefix("search options: ")
        raise RequestError(422, message, next((word for word in message.split() if word in given), None)) from None
    for name in given:
        method = METHOD_OF.get(name, options.method)
        if method != options.method:
            raise RequestError(
                422, f"{name} is for the method '{method}', but the method is '{options.method}'; leave it out", name
            )
    if "diversity_penalty" in given and options.beam_groups == 1:
        raise RequestError(
            422, "diversity_penalty has no effect with one group; set beam_groups too", "diversity_penalty"
        )
    if "max_extra" in given and "max_length" in given:
        raise RequestError(422, "max_extra has no effect with max_length; leave one of them out", "max_extra")
    return options


def check_stream(stream: bool, texts: int, n_best: int, parameter: str) -> None:
    """A stream is one text; raises RequestError (422)."""
    if stream and texts != 1:
        raise RequestError(422, f"stream needs one text, but {parameter} has {texts}", "stream")
    if stream and n_best > 1:
        raise RequestError(422, "stream cannot be combined with n_best above 1", "stream")
