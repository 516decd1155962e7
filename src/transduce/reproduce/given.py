"""A model that somebody else has, for a claim to be measured on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Given(NamedTuple):
    """A run or model folder, and what its model is asked."""

    folder: Path
    texts: Sequence[str] | None = None
    """None for those that the claim brings along."""
    to: str | None = None
    """The language that a model of several is asked for, and …"""
    of: str | None = None
    """… the one of the texts."""
