"""A disk that fails on command: it counts every file operation of a process and strikes at a chosen one.

What can happen to the process there:

    kill        it is killed before the operation; all that it did before has happened
    lose data   killed, and as after a power cut what was written since the last fsync of a file is gone
    lose names  the same, and so are files, folders and renames in folders that were not fsynced since
    full        the operation, and every later one that needs room, fails: no space left on the device
"""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import save

from transduce import model_folder as checkpoint
from transduce.training.checkpoint import Checkpoints

OPEN, LINK, RENAME, REPLACE = io.open, os.link, os.rename, os.replace
FSYNC, MKDIR, RMDIR, UNLINK, SYMLINK = os.fsync, os.mkdir, os.rmdir, os.unlink, os.symlink
FAILURES = ("kill", "lose data", "lose names", "full")
NEED_ROOM = {"open", "write", "fsync", "mkdir", "rename", "symlink"}
"""Operations that a full disk may refuse; removing is always possible."""


@dataclass
class Disk:
    """Watches what this process does below `root`; installed once, in a process of its own, which it may end."""

    root: Path
    failure: str = "kill"
    at: int = 0
    """The operation to strike at, counted from 1; 0 only counts."""
    scope: str = "all"
    """Which operations count: all, or those of a save (a checkpoint and the thinning out after it)."""
    strike: Callable[[], None] | None = None
    """What to do at that operation instead of the failure."""
    count: int = 0
    depth: int = 0
    """How many watched functions we are in."""
    durable: dict[int, int] = field(default_factory=dict)
    """Bytes of each file, by inode, that would survive a power cut."""
    undo: list[tuple[int, Callable[[], None]]] = field(default_factory=list)
    """How to take back each change of a folder, by its inode, that would not."""
    folders: dict[int, int] = field(default_factory=dict)
    """An open descriptor of each folder that was changed, so that it is found wherever it moves."""
    graves: Iterator[int] = field(default_factory=itertools.count)

    def install(self) -> None:
        """Put ourselves between the process and its files."""
        self.root = Path(os.path.realpath(self.root))
        names: dict[str, Any] = {
            "fsync": self._fsync,
            "mkdir": self._mkdir,
            "rmdir": self._rmdir,
            "symlink": self._symlink,
        }
        names |= {"rename": self._rename, "replace": self._rename, "unlink": self._unlink, "remove": self._unlink}
        for name, mine in names.items():
            setattr(os, name, mine)
        io.open = self._open
        checkpoint.save_file = self._save_file  # the library's own would write unseen
        for name in ("save", "prune"):
            setattr(Checkpoints, name, self._watched(getattr(Checkpoints, name)))

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **extra: Any) -> Any:
            self.depth += 1
            try:
                return function(*arguments, **extra)
            finally:
                self.depth -= 1

        return watched

    def reach(self, operation: str) -> None:
        """Note that an operation is about to happen, and strike if it is the one."""
        if self.scope == "save" and not self.depth:
            return
        if self.failure == "full" and operation not in NEED_ROOM:
            return
        self.count += 1
        if self.failure == "full" and self.strike is None:
            if 0 < self.at <= self.count:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        elif self.count == self.at:
            (self.strike or self._die)()

    def _die(self) -> None:
        os.unlink, os.rmdir = UNLINK, RMDIR  # nobody watches any more
        if self.failure != "kill":
            self._lose_data()
        if self.failure == "lose names":
            for inode, undo in reversed(self.undo):
                if os.fstat(self.folders[inode]).st_nlink:  # else the folder is gone for good, with all that was in it
                    undo()
        os.kill(os.getpid(), signal.SIGKILL)

    def _lose_data(self) -> None:
        for path in self.root.rglob("*"):
            if path.is_file() and not path.is_symlink():
                status = path.stat()
                if status.st_size > self.durable.get(status.st_ino, status.st_size):
                    os.truncate(path, self.durable[status.st_ino])

    def _mine(self, path: Any, dir_fd: int | None = None) -> tuple[int, str] | None:
        """Return a descriptor of the folder that holds a path, and its name there, if it is below our root."""
        base = Path.cwd() if dir_fd is None else Path(f"/proc/self/fd/{dir_fd}").readlink()
        folder, name = (base / os.fspath(path)).parent.resolve(), Path(os.fspath(path)).name
        if not folder.is_relative_to(self.root) or not folder.is_dir():
            return None
        inode = folder.stat().st_ino
        if inode not in self.folders:
            self.folders[inode] = os.open(folder, os.O_RDONLY)
        return self.folders[inode], name

    def _changed(self, folder: int, undo: Callable[[], None]) -> None:
        self.undo.append((os.fstat(folder).st_ino, undo))

    def _bury(self, folder: int, name: str) -> str | None:
        """Keep what is about to lose its name, so that it can come back."""
        if self.failure != "lose names":
            return None
        grave = str(self.root.parent / f"grave-{os.getpid()}-{next(self.graves)}")
        try:
            LINK(name, grave, src_dir_fd=folder, follow_symlinks=False)
        except OSError:
            return None
        return grave

    def _open(self, path: Any, mode: str = "r", *arguments: Any, **extra: Any) -> Any:
        place = self._mine(path) if set(mode) & set("wax+") and not isinstance(path, int) else None
        if place is None:
            return OPEN(path, mode, *arguments, **extra)
        self.reach("open")
        new = not os.path.lexists(path)
        file = OPEN(path, mode, *arguments, **extra)
        status = os.fstat(file.fileno())
        self.durable[status.st_ino] = 0 if new else self.durable.get(status.st_ino, status.st_size)
        if new:
            self._changed(place[0], lambda: _quietly(UNLINK, place[1], place[0]))
        return Writing(file, self)

    def _save_file(self, tensors: Any, path: Path) -> None:
        path.write_bytes(save(tensors))

    def _fsync(self, descriptor: int) -> None:
        self.reach("fsync")
        FSYNC(descriptor)
        status = os.fstat(descriptor)
        self.durable[status.st_ino] = status.st_size
        self.undo = [(inode, undo) for inode, undo in self.undo if inode != status.st_ino]

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        place = self._mine(path, dir_fd)
        if place is not None:
            self.reach("mkdir")
        MKDIR(path, mode, dir_fd=dir_fd)
        if place is not None:
            folder, name = place
            self._changed(folder, lambda: shutil.rmtree(name, ignore_errors=True, dir_fd=folder))

    def _symlink(self, target: Any, path: Any, *arguments: Any, **extra: Any) -> None:
        if (place := self._mine(path)) is not None:
            self.reach("symlink")
            self._changed(place[0], lambda: _quietly(UNLINK, place[1], place[0]))
        SYMLINK(target, path, *arguments, **extra)

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        place = self._mine(path, dir_fd)
        if place is not None:
            self.reach("rmdir")
            inner = self.folders.get(os.stat(path, dir_fd=dir_fd).st_ino)
        RMDIR(path, dir_fd=dir_fd)
        if place is None:
            return
        folder, name = place

        def undo() -> None:
            MKDIR(name, dir_fd=folder)
            if inner is not None:
                os.dup2(os.open(name, os.O_RDONLY, dir_fd=folder), inner)  # what was in it comes back into the new one

        self._changed(folder, undo)

    def _unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        place = self._mine(path, dir_fd)
        grave = None
        if place is not None:
            self.reach("unlink")
            grave = self._bury(*place)
        UNLINK(path, dir_fd=dir_fd)
        if place is None or grave is None:
            return
        folder, name = place
        self._changed(folder, lambda: RENAME(grave, name, dst_dir_fd=folder))

    def _rename(self, source: Any, target: Any) -> None:
        before, after = self._mine(source), self._mine(target)
        if before is None or after is None:
            return REPLACE(source, target)
        self.reach("rename")
        grave = self._bury(*after)
        REPLACE(source, target)
        (folder, name), (there, new) = before, after

        def undo() -> None:
            RENAME(new, name, src_dir_fd=there, dst_dir_fd=folder)
            if grave is not None:
                RENAME(grave, new, dst_dir_fd=there)

        return self._changed(folder, undo)


class Writing:
    """A file that is being written; it goes to the system in halves, so that it can be found torn."""

    def __init__(self, file: Any, disk: Disk) -> None:
        self._file, self._disk = file, disk

    def write(self, content: Any) -> int:
        half = len(content) // 2
        for part in (content[:half], content[half:]):
            self._disk.reach("write")
            self._file.write(part)
            self._file.flush()
        return len(content)

    def __enter__(self) -> Writing:
        return self

    def __exit__(self, *error: Any) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _quietly(function: Callable[..., None], name: str, folder: int) -> None:
    with contextlib.suppress(OSError):
        function(name, dir_fd=folder)
