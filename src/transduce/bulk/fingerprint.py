"""What answers depend on, by the names that a person knows: a part is gone on with by the same wishes only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transduce.bulk.source import is_file
from transduce.checkpoint import find_model
from transduce.config import Table
from transduce.storage import MANIFEST, sha256

NO_MATTER = ("run", "ensemble", "workers", "threads")
"""Options that say nothing about the answers; of models it is what is in them that counts, not their names."""
FILES = ("prefix_file", "terms", "shortlist")
"""Options that name a file, of which the same holds."""


def fingerprint(asked: dict[str, Any], fast: bool) -> Table:
    """Return all options as they were given, models and files by their hashes, and which engine answers what it can."""
    found = {_option(name): value for name, value in asked.items() if name not in NO_MATTER}
    found |= {_option(name): sha256(Path(asked[name])) for name in FILES if is_file(asked[name] or "-")}
    models = [sha256(find_model(Path(run)) / MANIFEST) for run in (asked["run"], *asked["ensemble"])]
    return {**found, "model": models, "engine": "ctranslate2" if fast else "torch"}


def _option(name: str) -> str:
    return {"nbest": "--n-best", "of": "--from"}.get(name, f"--{name.replace('_', '-')}")
