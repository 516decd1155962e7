"""Files of strangers: limits on bytes and values, and nothing but regular files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from transduce.errors import DataError, ModelFolderError
from transduce.storage.untrusted import parse_json, read_regular


def test_a_regular_file_within_the_limit_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_regular(tmp_path / "file", 5) == b"12345"
    with pytest.raises(ModelFolderError, match="larger than 4 bytes"):
        read_regular(tmp_path / "file", 4)


def test_all_else_is_rejected_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "device").symlink_to("/dev/zero")
    for name, message in (("pipe", "regular file"), ("link", "link"), ("device", "link"), ("none", "cannot be read")):
        with pytest.raises(DataError, match=message):
            read_regular(tmp_path / name, 5, DataError)
    with pytest.raises(ModelFolderError, match="regular file"):
        read_regular(tmp_path, 5)


def test_json_is_an_object_of_few_values_without_duplicates() -> None:
    assert parse_json(b'{"a": [1, 2]}', "x") == {"a": [1, 2]}
    for content, message in (
        (b"[]", "not a JSON object"),
        (b"{", "not valid JSON"),
        (b'{"a": 1, "a": 2}', "'a' twice"),
        (b'{"a":' * 90_000 + b"}" * 90_000, "not valid JSON"),
        (b'{"a": [' + b"1," * 99 + b"1]}", "more than 100 values"),
    ):
        with pytest.raises(ModelFolderError, match=message):
            parse_json(content, "x", most_values=100 if b"1,1" in content else 500_000)
