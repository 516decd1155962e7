"""Files and folders are whole or not there, wherever the writing stops."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from transduce.errors import Busy, CannotCreate, ModelFolderError, StorageError
from transduce.storage import files as storage
from transduce.storage.files import (
    MANIFEST,
    file_aside,
    folder_aside,
    held_file,
    locked,
    put_right,
    read_json,
    replace_json,
    seal,
    verify,
    write_json,
    write_manifest,
)

KIND = "transduce model"


def everything(folder: Path) -> dict[str, str]:
    """Every file below a folder, hidden ones too, with its text."""
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


class Stop(BaseException):
    """What Ctrl-C is like: no Exception."""


def fail_at(monkeypatch: pytest.MonkeyPatch, place: object, name: str, call: int, error: BaseException) -> None:
    """Let the call of this number fail, and those before and after it succeed."""
    real, calls = getattr(place, name), 0

    def failing(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == call:
            raise error
        return real(*arguments)

    monkeypatch.setattr(place, name, failing)


def test_a_file_written_aside_takes_its_place_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "file.txt"
    with file_aside(path) as aside:
        aside.write_text("whole")
        assert not path.exists()
        assert aside.parent == path.parent
    assert everything(tmp_path) == {"new/deep/file.txt": "whole"}


@pytest.mark.parametrize("error", [ValueError("inside"), Stop()], ids=["exception", "interrupt"])
@pytest.mark.parametrize("there", [True, False])
def test_a_file_stays_as_it_was_when_the_writing_fails(tmp_path: Path, error: BaseException, there: bool) -> None:
    path = tmp_path / "file.txt"
    if there:
        path.write_text("old")
    before = everything(tmp_path)
    with pytest.raises(type(error)), file_aside(path) as aside:
        aside.write_text("half")
        raise error
    assert everything(tmp_path) == before


@pytest.mark.parametrize(("place", "name"), [(storage, "sync"), (Path, "replace")], ids=["sync", "replace"])
def test_a_file_stays_as_it_was_when_the_system_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: object, name: str
) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    fail_at(monkeypatch, place, name, 1, OSError(errno.EIO, "Input/output error"))
    with pytest.raises(StorageError, match=r"file\.txt: writing failed"), file_aside(path) as aside:
        aside.write_text("new")
    assert everything(tmp_path) == {"file.txt": "old"}


def test_a_file_that_nobody_wrote_is_an_error_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(CannotCreate), file_aside(tmp_path / "file.txt"):
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
def test_what_the_system_says_becomes_a_sentence(tmp_path: Path, code: int, kind: type[Exception]) -> None:
    with pytest.raises(kind) as refusal, file_aside(tmp_path / "file.txt"):
        raise OSError(code, os.strerror(code))
    assert str(tmp_path / "file.txt") in str(refusal.value)
    assert os.strerror(code) in str(refusal.value)


def test_a_folder_filled_aside_takes_its_place_at_the_end(tmp_path: Path) -> None:
    with folder_aside(tmp_path / "new" / "model") as aside:
        (aside / "a.txt").write_text("whole")
        assert not (tmp_path / "new" / "model").exists()
    assert everything(tmp_path) == {"new/model/a.txt": "whole"}


def test_a_new_folder_replaces_the_old_one_whole(tmp_path: Path) -> None:
    for name in ("old.txt", "new.txt"):
        with folder_aside(tmp_path / "model") as aside:
            (aside / name).write_text("whole")
    assert everything(tmp_path) == {"model/new.txt": "whole"}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("error", [ValueError("inside"), Stop()], ids=["exception", "interrupt"])
@pytest.mark.parametrize("there", [True, False])
def test_a_folder_stays_as_it_was_when_the_filling_fails(tmp_path: Path, error: BaseException, there: bool) -> None:
    if there:
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "a.txt").write_text("old")
    before = everything(tmp_path)
    with pytest.raises(type(error)), folder_aside(tmp_path / "model") as aside:
        (aside / "a.txt").write_text("half")
        raise error
    assert everything(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == (["model"] if there else [])


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), Stop()], ids=["system", "interrupt"])
@pytest.mark.parametrize(
    ("place", "name", "call", "left"),
    [(Path, "rename", 1, "old"), (Path, "rename", 2, "old"), (storage, "sync", 1, "new")],
    ids=["before the old one steps aside", "between the two", "after the new one is there"],
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
    with pytest.raises(StorageError if isinstance(error, OSError) else Stop), folder_aside(tmp_path / "model") as aside:
        (aside / "a.txt").write_text("new")
    assert everything(tmp_path) == {"model/a.txt": left}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_a_killed_process_left_behind_is_put_right_by_the_next(tmp_path: Path) -> None:
    """Killed between the two renames: the old folder has stepped aside, the new one is not there yet."""
    (tmp_path / ".model.replaced").mkdir()
    (tmp_path / ".model.replaced" / "a.txt").write_text("old")
    (tmp_path / ".model.writing").mkdir()
    (tmp_path / ".model.writing" / "a.txt").write_text("half")
    with pytest.raises(Stop), folder_aside(tmp_path / "model") as aside:
        assert list(aside.iterdir()) == []
        assert everything(tmp_path) == {"model/a.txt": "old"}
        raise Stop
    assert everything(tmp_path) == {"model/a.txt": "old"}


def test_what_killed_processes_left_in_a_folder_is_put_right(tmp_path: Path) -> None:
    for name in (".a.replaced", ".b.replaced", "b", ".c.writing"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    (tmp_path / ".d.123.writing").write_text("half")
    put_right(tmp_path)
    assert everything(tmp_path) == {"a/file": ".a.replaced", "b/file": "b"}
    put_right(tmp_path / "nowhere")


def test_two_at_once_do_not_write_one_folder(tmp_path: Path) -> None:
    with folder_aside(tmp_path / "model") as aside:
        (aside / "a.txt").write_text("first")
        with pytest.raises(Busy), folder_aside(tmp_path / "model"):
            pass
    assert everything(tmp_path) == {"model/a.txt": "first"}


def sealed(folder: Path) -> Path:
    with folder_aside(folder) as aside:
        (aside / "a.txt").write_text("alpha")
        (aside / "deep").mkdir()
        (aside / "deep" / "b.txt").write_text("beta")
        seal(aside, KIND, format=3)
    return folder


def test_a_sealed_folder_verifies_and_gives_its_notes(tmp_path: Path) -> None:
    manifest = verify(sealed(tmp_path / "model"), KIND)
    assert (manifest["kind"], manifest["format"]) == (KIND, 3)
    assert manifest["files"].keys() == {"a.txt", "deep/b.txt"}
    assert manifest["files"]["a.txt"] == {
        "size": 5,
        "sha256": "8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8",  # of "alpha", by sha256sum
    }


def test_a_folder_of_another_kind_or_without_a_seal_is_refused(tmp_path: Path) -> None:
    folder = sealed(tmp_path / "model")
    with pytest.raises(ModelFolderError, match="transduce checkpoint"):
        verify(folder, "transduce checkpoint")
    (folder / MANIFEST).unlink()
    with pytest.raises(ModelFolderError, match=MANIFEST):
        verify(folder, KIND)


@pytest.mark.parametrize("name", ["../outside.txt", "/etc/hostname", "deep/../../outside.txt", "nothing.txt"])
def test_a_manifest_cannot_point_outside_its_folder(tmp_path: Path, name: str) -> None:
    folder = sealed(tmp_path / "model")
    (tmp_path / "outside.txt").write_text("alpha")
    manifest = read_json(folder / MANIFEST)
    manifest["files"][name] = manifest["files"]["a.txt"]
    write_manifest(folder, manifest)
    with pytest.raises(ModelFolderError, match="missing or not a plain file"):
        verify(folder, KIND)


def test_a_manifest_whose_bytes_changed_is_refused_even_if_it_means_the_same(tmp_path: Path) -> None:
    folder = sealed(tmp_path / "model")
    whole = (folder / MANIFEST).read_bytes()
    for content in (whole[:-1], whole.replace(b": 3", b":  3"), whole.replace(b": 3", b": 7"), whole + b" "):
        assert content != whole
        (folder / MANIFEST).write_bytes(content)
        with pytest.raises(ModelFolderError, match=r"manifest\.json: is damaged"):
            verify(folder, KIND)


def test_the_seal_is_the_hash_of_the_manifest_without_it(tmp_path: Path) -> None:
    text = (sealed(tmp_path / "model") / MANIFEST).read_text()
    table = json.loads(text)
    seal_line = f',\n  "seal": "{table.pop("seal")}"'
    assert text.count(seal_line) == 1
    assert hashlib.sha256(text.replace(seal_line, "").encode()).hexdigest() in seal_line


def test_a_manifest_from_before_there_were_seals_is_believed(tmp_path: Path) -> None:
    folder = sealed(tmp_path / "model")
    manifest = read_json(folder / MANIFEST)
    del manifest["seal"]
    write_json(folder / MANIFEST, manifest)
    assert verify(folder, KIND) == manifest
    (folder / "a.txt").write_text("alphA")
    with pytest.raises(ModelFolderError, match=r"a\.txt: is damaged"):
        verify(folder, KIND)


@pytest.mark.parametrize(
    "text", ['{"kind": "\\ud800", "files": {}, "seal": ""}', '{"files": {}, "x": ' + "[" * 900 + "]" * 900 + "}"]
)
def test_a_manifest_that_cannot_be_written_is_refused_like_any_other(tmp_path: Path, text: str) -> None:
    folder = sealed(tmp_path / "model")
    (folder / MANIFEST).write_text(text)
    with pytest.raises(ModelFolderError, match=r"manifest\.json"):
        verify(folder, KIND)


def test_a_link_is_no_plain_file(tmp_path: Path) -> None:
    folder = sealed(tmp_path / "model")
    (folder / "a.txt").rename(tmp_path / "a.txt")
    (folder / "a.txt").symlink_to(tmp_path / "a.txt")
    with pytest.raises(ModelFolderError, match="not a plain file"):
        verify(folder, KIND)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'"text"', b"\xff\xfe", b"[" * 100_000, b'{"files": 1'])
def test_json_that_is_no_object_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "some.json").write_bytes(content)
    with pytest.raises(ModelFolderError, match=r"some\.json"):
        read_json(tmp_path / "some.json")


def test_json_is_written_as_the_same_bytes_and_read_back(tmp_path: Path) -> None:
    table = {"z": [1, 2.5, None], "a": {"ä": "東京"}}
    for name in ("one", "two"):
        write_json(tmp_path / name, table)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert read_json(tmp_path / "one") == table


def test_a_locked_folder_is_busy_for_another_process_and_free_afterwards(tmp_path: Path) -> None:
    """The lock ends with the process that held it, even if it was killed: here it simply ends."""
    script = (
        "import sys; from pathlib import Path; from transduce.storage.files import locked\n"
        "with locked(Path(sys.argv[1]), 'training'):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(Busy, match="another process is training there"), locked(tmp_path, "training"):
            pass
        other.kill()
    with locked(tmp_path, "training"):
        pass


def test_a_lock_that_its_holder_removed_is_not_taken_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened while somebody held it, and locked when he had removed it: a third would find a new one, and go on too."""
    real = os.open

    def opened(path: Path, *arguments: int) -> int:
        monkeypatch.setattr(os, "open", real)
        descriptor = real(path, *arguments)
        path.unlink()
        return descriptor

    monkeypatch.setattr(os, "open", opened)
    with locked(tmp_path, "training"), pytest.raises(Busy), locked(tmp_path, "training"):
        pass


def test_json_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "note.json"
    replace_json(path, {"number": 1})
    for place, name in ((storage, "sync"), (Path, "replace")):
        with monkeypatch.context() as patch, pytest.raises(Stop):
            fail_at(patch, place, name, 1, Stop())
            replace_json(path, {"number": 2})
        assert everything(tmp_path) == {"note.json": '{\n  "number": 1\n}\n'}
    replace_json(path, {"number": 3})
    assert everything(tmp_path) == {"note.json": '{\n  "number": 3\n}\n'}


def test_a_held_file_is_kept_as_it_is_and_is_one_process_s(tmp_path: Path) -> None:
    path = tmp_path / "x.part"
    with held_file(path, path, "busy") as file:
        file.write(b"some")
        with pytest.raises(Busy, match="busy"), held_file(path, path, "busy"):
            raise AssertionError
    with held_file(path, path, "busy") as file:
        assert file.read() == b"some"
        path.rename(tmp_path / "x")
        with held_file(path, path, "busy") as other:  # the name is free again
            assert other.read() == b""
    with pytest.raises(CannotCreate, match="shown: cannot be written"), held_file(tmp_path, Path("shown"), "busy"):
        raise AssertionError
