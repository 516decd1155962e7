"""A full folder for temporary files is named, not the output that is written meanwhile."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest

from transduce.errors import StorageError
from transduce.storage.filesystem import storage_errors, temporary_storage_errors


def test_the_temporary_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    with (
        pytest.raises(StorageError, match=r"temporary: writing failed .* TMPDIR") as raised,
        storage_errors(tmp_path / "out.txt"),
        temporary_storage_errors(),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert "out.txt" not in str(raised.value)


def test_no_temporary_folder_at_all_is_a_storage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    with pytest.raises(StorageError, match="TMPDIR"), temporary_storage_errors():
        pass
