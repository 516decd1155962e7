"""The tokens that frame a sentence."""

from __future__ import annotations

from typing import NamedTuple


class Specials(NamedTuple):
    """Ids of one side's special tokens."""

    pad: int
    start: int
    end: int
