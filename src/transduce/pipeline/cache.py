"""Stages on disk: a folder for each, named by a key of everything that determines its result.

    OUTPUT/clean-0123456789ab/    the results, and `stage.json`, which is written last
    OUTPUT/teacher-…/             …

The key is a hash of the stage's settings, of the contents of its inputs and of its version. A stage whose folder has a
complete `stage.json` is not carried out again; of an interrupted one the folder remains, and the stage resumes in it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from transduce.config import Table
from transduce.errors import DataError
from transduce.storage.atomic import read_json, replace_json
from transduce.storage.filesystem import create_parents, storage_errors
from transduce.storage.layout import MANIFEST, MODEL_CARD
from transduce.storage.manifest import sha256

RECORD = "stage.json"
KEY_LENGTH = 12


@dataclass(frozen=True)
class Stage:
    """One stage: what determines its result, and how it is carried out."""

    name: str
    version: int
    """Raised when the same inputs and settings give another result."""
    settings: Table
    inputs: Mapping[str, Sequence[Path]]
    """Files and model folders by what they are."""
    outputs: tuple[str, ...]
    """Files and model folders that it leaves in its folder."""
    run: Callable[[Path], Table | None]
    """Carries it out in a folder, and returns what to record of it."""


@dataclass
class Done:
    """A stage that is complete."""

    folder: Path
    reused: bool
    seconds: float
    facts: Table = field(default_factory=dict)

    def __truediv__(self, name: str) -> Path:
        return self.folder / name


def content_hash(path: Path) -> str:
    """Return the hash of a file's content, or of a model folder's, leaving out its card, which has times."""
    if path.is_dir():
        files = read_json(path / MANIFEST, DataError)["files"]
        hashes = {name: entry["sha256"] for name, entry in sorted(files.items()) if name != MODEL_CARD}
        return hashlib.sha256(json.dumps(hashes).encode()).hexdigest()
    with storage_errors(path):
        return sha256(path)


def key_of(stage: Stage) -> str:
    """Return the key of a stage."""
    contents = {name: [content_hash(path) for path in paths] for name, paths in stage.inputs.items()}
    table = {"stage": stage.name, "version": stage.version, "settings": stage.settings, "inputs": contents}
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()


def is_complete(folder: Path, key: str) -> bool:
    """Whether a folder has the results of a stage, as they were written."""
    if not (folder / RECORD).is_file():
        return False
    record = read_json(folder / RECORD, DataError, "remove the folder to carry out the stage again")
    outputs = record.get("outputs", {})
    return record.get("key") == key and all(
        (folder / name).exists() and content_hash(folder / name) == digest for name, digest in outputs.items()
    )


def carry_out(stage: Stage, output: Path, begin: Callable[[str, Path, bool], None]) -> Done:
    """Carry out a stage unless its results exist; `begin` is called with its name, its folder, and whether they do."""
    key = key_of(stage)
    folder = output / f"{stage.name}-{key[:KEY_LENGTH]}"
    reused = is_complete(folder, key)
    begin(stage.name, folder, reused)
    if not reused:
        began = time.monotonic()
        with create_parents(folder / RECORD):
            (folder / RECORD).unlink(missing_ok=True)
            facts = stage.run(folder) or {}
        record: Table = {
            "stage": stage.name,
            "key": key,
            "version": stage.version,
            "settings": stage.settings,
            "inputs": {name: [str(path) for path in paths] for name, paths in stage.inputs.items()},
            "outputs": {name: content_hash(folder / name) for name in stage.outputs},
            "seconds": round(time.monotonic() - began, 2),
            "facts": facts,
        }
        with storage_errors(folder):
            replace_json(folder / RECORD, record)
    record = read_json(folder / RECORD, DataError)
    return Done(folder, reused, float(record["seconds"]), dict(record["facts"]))
