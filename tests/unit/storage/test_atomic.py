"""Files and folders are complete or absent, wherever writing stops."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.unit.storage.failing import Stop, everything, fail_at
from transduce.errors import Busy, CannotCreate, StorageError
from transduce.storage import atomic, filesystem
from transduce.storage import filesystem as lock
from transduce.storage.atomic import atomic_file, atomic_folder, recover


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "file.txt"
    with atomic_file(path) as temporary:
        temporary.write_text("whole")
        assert not path.exists()
        assert temporary.parent == path.parent
    assert everything(tmp_path) == {"new/deep/file.txt": "whole"}


@pytest.mark.parametrize("error", [ValueError("inside"), Stop()], ids=["exception", "interrupt"])
@pytest.mark.parametrize("there", [True, False])
def test_a_file_stays_as_it_was_when_the_writing_fails(tmp_path: Path, error: BaseException, there: bool) -> None:
    path = tmp_path / "file.txt"
    if there:
        path.write_text("old")
    before = everything(tmp_path)
    with pytest.raises(type(error)), atomic_file(path) as temporary:
        temporary.write_text("half")
        raise error
    assert everything(tmp_path) == before


@pytest.mark.parametrize(("place", "name"), [(atomic, "sync"), (Path, "replace")], ids=["sync", "replace"])
def test_a_file_stays_as_it_was_when_the_system_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: object, name: str
) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    fail_at(monkeypatch, place, name, 1, OSError(errno.EIO, "Input/output error"))
    with pytest.raises(StorageError, match=r"file\.txt: writing failed"), atomic_file(path) as temporary:
        temporary.write_text("new")
    assert everything(tmp_path) == {"file.txt": "old"}


def test_a_file_that_nobody_wrote_is_an_error_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(CannotCreate), atomic_file(tmp_path / "file.txt"):
        pass
    assert everything(tmp_path) == {}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOSPC, StorageError),
        (errno.EDQUOT, StorageError),
        (errno.EIO, StorageError),
        (errno.EACCES, CannotCreate),
        (errno.EROFS, CannotCreate),
        (errno.ENAMETOOLONG, CannotCreate),
    ],
)
def test_a_system_error_names_path_and_reason(tmp_path: Path, code: int, kind: type[Exception]) -> None:
    with pytest.raises(kind) as raised, atomic_file(tmp_path / "file.txt"):
        raise OSError(code, os.strerror(code))
    assert str(tmp_path / "file.txt") in str(raised.value)
    assert os.strerror(code) in str(raised.value)


def test_a_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "new" / "model") as temporary:
        (temporary / "a.txt").write_text("whole")
        assert not (tmp_path / "new" / "model").exists()
    assert everything(tmp_path) == {"new/model/a.txt": "whole"}


def test_a_new_folder_replaces_the_old_one_whole(tmp_path: Path) -> None:
    for name in ("old.txt", "new.txt"):
        with atomic_folder(tmp_path / "model") as temporary:
            (temporary / name).write_text("whole")
    assert everything(tmp_path) == {"model/new.txt": "whole"}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("error", [ValueError("inside"), Stop()], ids=["exception", "interrupt"])
@pytest.mark.parametrize("there", [True, False])
def test_a_folder_stays_as_it_was_when_the_filling_fails(tmp_path: Path, error: BaseException, there: bool) -> None:
    if there:
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "a.txt").write_text("old")
    before = everything(tmp_path)
    with pytest.raises(type(error)), atomic_folder(tmp_path / "model") as temporary:
        (temporary / "a.txt").write_text("half")
        raise error
    assert everything(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == (["model"] if there else [])


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), Stop()], ids=["system", "interrupt"])
@pytest.mark.parametrize(
    ("place", "name", "call", "left"),
    [(Path, "rename", 1, "old"), (Path, "rename", 2, "old"), (atomic, "sync", 1, "new")],
    ids=["before the old one is renamed", "between the two", "after the new one is there"],
)
def test_a_whole_folder_stands_there_wherever_the_exchange_stops(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    place: object,
    name: str,
    call: int,
    left: str,
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "a.txt").write_text("old")
    fail_at(monkeypatch, place, name, call, error)
    with (
        pytest.raises(StorageError if isinstance(error, OSError) else Stop),
        atomic_folder(tmp_path / "model") as temporary,
    ):
        (temporary / "a.txt").write_text("new")
    assert everything(tmp_path) == {"model/a.txt": left}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_next_process_recovers_what_a_killed_one_left_behind(tmp_path: Path) -> None:
    """Killed between the two renames: the old folder has its hidden name, the new one is not there yet."""
    (tmp_path / ".model.replaced").mkdir()
    (tmp_path / ".model.replaced" / "a.txt").write_text("old")
    (tmp_path / ".model.writing").mkdir()
    (tmp_path / ".model.writing" / "a.txt").write_text("half")
    with pytest.raises(Stop), atomic_folder(tmp_path / "model") as temporary:
        assert list(temporary.iterdir()) == []
        assert everything(tmp_path) == {".model.writing.lock": "", "model/a.txt": "old"}
        raise Stop
    assert everything(tmp_path) == {"model/a.txt": "old"}


def test_recover_restores_replaced_folders_and_removes_temporary_files(tmp_path: Path) -> None:
    for name in (".a.replaced", ".b.replaced", "b", ".c.writing"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    (tmp_path / ".d.123.writing").write_text("half")
    (tmp_path / ".c.writing.lock").touch()
    recover(tmp_path)
    assert everything(tmp_path) == {"a/file": ".a.replaced", "b/file": "b"}
    recover(tmp_path / "nowhere")


def test_two_at_once_do_not_write_one_folder(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "model") as temporary:
        (temporary / "a.txt").write_text("first")
        with pytest.raises(Busy), atomic_folder(tmp_path / "model"):
            pass
    assert everything(tmp_path) == {"model/a.txt": "first"}


def test_what_windows_does_otherwise_leaves_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot force a folder to disk, nor remove or rename an open file."""
    for module in (filesystem, lock):
        monkeypatch.setattr(module, "WINDOWS", True)
    monkeypatch.delattr(os, "pread")
    for content in ("old", "new"):
        with atomic_folder(tmp_path / "model") as temporary:
            (temporary / "a.txt").write_text(content)
        with atomic_file(tmp_path / "b.txt") as temporary:
            temporary.write_text(content)
    with lock.locked_file(tmp_path / "c.part", tmp_path, "busy") as file:
        file.write(b"part")
        lock.move_locked(file, tmp_path / "c.part", tmp_path / "c.txt")
    assert everything(tmp_path) == {"b.txt": "new", "c.txt": "part", "model/a.txt": "new"}
    descriptor = filesystem.open_for_reading(tmp_path / "c.txt")
    assert filesystem.read_at(descriptor, 2, 1) == b"ar"
    os.close(descriptor)
