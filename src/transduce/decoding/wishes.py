"""A person's wishes laid over the options that a model was saved with."""

from __future__ import annotations

from typing import Any

from transduce.decoding.options import OF_A_BEAM, SAMPLING, SearchOptions
from transduce.errors import SettingsError


def with_wishes(saved_options: SearchOptions, **wishes: Any) -> SearchOptions:
    """Return options with some of them changed; None leaves one as it is. What belongs to one method chooses it."""
    given = {name: value for name, value in wishes.items() if value is not None}
    saved = saved_options.model_dump()
    if "method" not in given and given.keys() & set(SAMPLING):
        given["method"] = "sample"
    elif "method" not in given and ("beam" in given or (given.get("nbest", 1) > 1 and saved["method"] == "greedy")):
        given["method"] = "beam"
    method = given.get("method", saved["method"])
    if method == "sample" and "beam" in given:
        raise SettingsError("a sample draws one token at a time and a beam keeps several openings; ask for one of them")
    if method != saved["method"]:  # what was saved is for another way to search
        saved = {name: value for name, value in saved.items() if name not in (*SAMPLING, *OF_A_BEAM, "nbest")}
    if method == "beam" and given.get("nbest", 1) > 1 and "beam" not in given:
        groups = max(1, given.get("groups", saved.get("groups", 1)))
        given["beam"] = -(-max(given["nbest"], saved_options.beam) // groups) * groups
    if given.get("groups") == 1 and "diversity" not in given:
        saved.pop("diversity", None)
    return SearchOptions.from_table({**saved, **given}, "the search")
