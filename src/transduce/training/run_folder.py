"""The folder of a run: whose it is, what may become one, and how it is left when nothing came of it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from transduce.errors import CannotCreate
from transduce.storage.atomic import atomic_file, recover
from transduce.storage.filesystem import create_parents, storage_errors
from transduce.storage.layout import CHECKPOINTS, LOCK, RECIPE
from transduce.storage.lock import locked


@contextlib.contextmanager
def held(folder: Path, resume: bool) -> Iterator[None]:
    """Hold a run's folder for this process alone. A new run needs a new or empty one, made here if need be."""
    if not resume:
        _refuse_foreign(folder)
    with create_parents(folder / RECIPE, folder), locked(folder, "training"):
        if not resume and (folder / RECIPE).exists():
            raise CannotCreate(
                f"{folder}: holds a run already; go on with `transduce train --resume {folder}`, "
                "or choose another folder"
            )
        with storage_errors(folder):
            for place in (folder, folder / CHECKPOINTS):
                recover(place)
        yield


@contextlib.contextmanager
def emptied_on_error(folder: Path) -> Iterator[None]:
    """Leave a new run's folder empty when it could not be set up, so that the same command can be given again.

    The recipe goes late, so that what is left is a run if we are killed meanwhile; the lock goes last.
    """
    try:
        yield
    except BaseException:
        for entry in sorted(folder.iterdir(), key=lambda entry: (entry.name == LOCK, entry.name == RECIPE)):
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        raise


@contextlib.contextmanager
def kept_on_error(path: Path) -> Iterator[None]:
    """Leave a file as it was when what it was changed for is refused."""
    before = path.read_bytes()
    try:
        yield
    except BaseException:
        if path.read_bytes() != before:
            with atomic_file(path) as temporary:
                temporary.write_bytes(before)
        raise


def _refuse_foreign(folder: Path) -> None:
    """Say no before anything is written, even a lock, to a folder that holds somebody's files."""
    with storage_errors(folder):
        if folder.exists() and not folder.is_dir():
            raise CannotCreate(f"{folder}: exists and is not a folder; choose another name")
        names = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    names = {name for name in names if not name.startswith(f".{RECIPE}.")}  # of one who was killed while writing it
    if names - {LOCK} and RECIPE not in names:
        raise CannotCreate(f"{folder}: holds files that are not a run; choose a new folder")
