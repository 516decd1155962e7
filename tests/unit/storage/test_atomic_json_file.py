"""JSON objects: same bytes each time, replaced atomically, rejected when they are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.storage.failing import Stop, everything, fail_at
from transduce.errors import ModelFolderError
from transduce.storage import atomic as json_file
from transduce.storage.atomic import read_json, replace_json, write_json


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'"text"', b"\xff\xfe", b"[" * 100_000, b'{"files": 1'])
def test_json_that_is_no_object_is_rejected(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "some.json").write_bytes(content)
    with pytest.raises(ModelFolderError, match=r"some\.json"):
        read_json(tmp_path / "some.json")


def test_json_is_written_as_the_same_bytes_and_read_back(tmp_path: Path) -> None:
    table = {"z": [1, 2.5, None], "a": {"ä": "東京"}}
    for name in ("one", "two"):
        write_json(tmp_path / name, table)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert read_json(tmp_path / "one") == table


def test_json_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "note.json"
    replace_json(path, {"number": 1})
    for place, name in ((json_file, "sync"), (Path, "replace")):
        with monkeypatch.context() as patch, pytest.raises(Stop):
            fail_at(patch, place, name, 1, Stop())
            replace_json(path, {"number": 2})
        assert everything(tmp_path) == {"note.json": '{\n  "number": 1\n}\n'}
    replace_json(path, {"number": 3})
    assert everything(tmp_path) == {"note.json": '{\n  "number": 3\n}\n'}
