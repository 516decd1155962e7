"""What a browser loads of the studio: a fixed table of files, read once; no path of a request reaches the disk."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from typing import NamedTuple

MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
"""Files that are served, by the end of their names."""
PAGE = "studio.html"


class Asset(NamedTuple):
    """A file in memory."""

    data: bytes
    media_type: str


def load_assets() -> tuple[bytes, dict[str, Asset]]:
    """Return the page, and the files that it loads by their path below `/studio/`."""
    folder = resources.files("transduce.inspection").joinpath("page")
    return folder.joinpath(PAGE).read_bytes(), dict(_found(folder, ""))


def _found(folder: Traversable, prefix: str) -> list[tuple[str, Asset]]:
    found: list[tuple[str, Asset]] = []
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        suffix = entry.name[entry.name.rfind(".") :]
        if entry.is_dir():
            found += _found(entry, f"{prefix}{entry.name}/")
        elif suffix in MEDIA_TYPES:
            found.append((f"{prefix}{entry.name}", Asset(entry.read_bytes(), MEDIA_TYPES[suffix])))
    return found
