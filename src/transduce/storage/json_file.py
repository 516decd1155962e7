"""JSON objects as files: read with helpful errors, written as the same bytes each time, replaced atomically."""

from __future__ import annotations

import json
from pathlib import Path

from transduce.config import Table
from transduce.errors import ModelFolderError, TransduceError
from transduce.storage.filesystem import sync

REMEDY = "copy the folder again"


def read_json(path: Path, error_type: type[TransduceError] = ModelFolderError, remedy: str = REMEDY) -> Table:
    """Read a JSON object; a file that is none raises `error_type`, with `remedy` as the advice."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise error_type(f"{path}: cannot be read ({error.strerror}); {remedy}") from None
    except (ValueError, RecursionError):
        raise error_type(f"{path}: is not valid JSON; {remedy}") from None
    if not isinstance(table, dict):
        raise error_type(f"{path}: is not a JSON object; {remedy}")
    return table


def write_json(path: Path, table: Table) -> None:
    """Write a JSON object, always as the same bytes, and force it to disk."""
    path.write_bytes(json_bytes(table))
    sync(path)


def replace_json(path: Path, table: Table) -> None:
    """Replace a JSON file: wherever this is interrupted, the old object or the new one is complete.

    For one process at a time; the temporary file of a killed process is overwritten by the next.
    """
    temporary = path.with_name(f"{path.name}.new")
    try:
        write_json(temporary, table)
        temporary.replace(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def json_bytes(table: Table) -> bytes:
    """The bytes that `write_json` writes."""
    return (json.dumps(table, ensure_ascii=False, indent=2) + "\n").encode("utf-8")
