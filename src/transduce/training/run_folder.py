"""The folder of a run: locked by one process, recovered after a kill, and left clean when a start fails."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from transduce.errors import CannotCreate
from transduce.storage.atomic import atomic_file, recover
from transduce.storage.filesystem import WINDOWS, create_parents, locked, remove, storage_errors
from transduce.storage.layout import CHECKPOINTS, LOCK, RECIPE, TEXTS


@contextlib.contextmanager
def locked_run(folder: Path, resume: bool) -> Iterator[None]:
    """Lock a run's folder for this process, and recover what a killed one left there.

    A new run needs an absent or empty folder.
    """
    if not resume:
        check_unused(folder)
    with create_parents(folder / RECIPE, folder), locked(folder, "training"):
        if not resume:
            check_no_run(folder)
        with storage_errors(folder):
            for place in (folder, folder / CHECKPOINTS):
                recover(place)
        yield


@contextlib.contextmanager
def empty_on_error(folder: Path) -> Iterator[None]:
    """Empty a new run's folder if setting it up fails, so that the same command can be run again.

    The recipe is removed late, so that the folder still counts as a run if the process is killed; the lock is last.
    """
    try:
        yield
    except BaseException:
        for entry in sorted(folder.iterdir(), key=lambda entry: (entry.name == LOCK, entry.name == RECIPE)):
            if not (WINDOWS and entry.name == LOCK):  # Windows cannot remove an open file
                remove(entry)
        raise


@contextlib.contextmanager
def restore_on_error(path: Path) -> Iterator[None]:
    """Restore a file's content if an error follows its change."""
    before = path.read_bytes()
    try:
        yield
    except BaseException:
        if path.read_bytes() != before:
            with atomic_file(path) as temporary:
                temporary.write_bytes(before)
        raise


def check_no_run(folder: Path) -> None:
    """Reject a folder that holds a run already."""
    if (folder / RECIPE).exists():
        raise CannotCreate(
            f"{folder}: already holds a run; resume it with `transduce train --resume {folder}`, "
            "or choose another folder"
        )


def check_free(folder: Path) -> None:
    """Reject a folder in which a run is being trained, or that holds one already."""
    if (folder / RECIPE).exists():
        with locked(folder, "training"):
            check_no_run(folder)


def check_unused(folder: Path) -> None:
    """Reject a folder with foreign files before anything, even a lock, is written to it; its texts may be there."""
    with storage_errors(folder):
        if folder.exists() and not folder.is_dir():
            raise CannotCreate(f"{folder}: exists and is not a folder; choose another name")
        names = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    names = {name for name in names if not name.startswith(f".{RECIPE}.")}  # left by a process killed while writing it
    if names - {LOCK, TEXTS} and RECIPE not in names:
        raise CannotCreate(f"{folder}: holds files that are not a run; choose a new folder")
