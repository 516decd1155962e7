"""Writing a file whole or not at all."""

from __future__ import annotations

from pathlib import Path

from transduce.errors import CannotCreate
from transduce.storage import file_aside


def write_file(path: Path, content: bytes) -> None:
    """Write a picture or page into a folder that is there; a link is followed, a device written to."""
    if not path.parent.is_dir():
        raise CannotCreate(f"{path}: cannot be created (there is no folder {path.parent}); give another place")
    with file_aside(path) as aside:
        aside.write_bytes(content)
